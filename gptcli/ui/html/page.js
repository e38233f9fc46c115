// Reading values off charts, showing the likeliest tokens, and walking through attention, by pointer or keys. Texts
// become text nodes only, never markup.
"use strict";

const data = (id) => JSON.parse(document.getElementById(id).textContent);
const element = (name, text, parent) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};
const percent = (p) => (100 * p).toFixed(p < 0.1 ? 1 : 0) + " %";
const number = (y) => (Math.abs(y) >= 1000 ? Math.round(y).toLocaleString("en") : String(Number(y.toPrecision(5))));

// Charts: a cursor that follows the pointer or the arrow keys, and the values at its place.
for (const figure of document.querySelectorAll("figure.chart:has(> script)")) {
  const { names, xs, left, right, from, to, unit } = JSON.parse(figure.querySelector("script").textContent);
  const svg = figure.querySelector("svg"), cursor = svg.querySelector(".cursor"), output = figure.querySelector("output");
  const steps = [...new Set(xs.flatMap((points) => points.map((point) => point[0])))].sort((a, b) => a - b);
  let place = steps.length - 1;
  const show = () => {
    const x = steps[place], at = left + ((x - from) / (to - from || 1)) * (right - left);
    cursor.setAttribute("x1", at); cursor.setAttribute("x2", at); cursor.removeAttribute("visibility");
    const values = xs.flatMap((points, index) => {
      const point = points.findLast((one) => one[0] <= x);
      return point ? [`${names[index]} ${number(point[1])}`] : [];
    });
    output.textContent = `${unit} ${number(x)}: ${values.join(" · ")}`;
  };
  const hide = () => { cursor.setAttribute("visibility", "hidden"); output.textContent = ""; };
  if (!steps.length) continue;
  svg.addEventListener("pointermove", (event) => {
    const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const wanted = from + ((x - left) / (right - left)) * (to - from);
    place = steps.reduce((best, one, index) => (Math.abs(one - wanted) < Math.abs(steps[best] - wanted) ? index : best), 0);
    show();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("focus", show);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -steps.length, End: steps.length }[event.key];
    if (!move) return;
    event.preventDefault();
    place = Math.max(0, Math.min(steps.length - 1, place + move));
    show();
  });
}

// A row of tokens, of which one is chosen by pointer or arrow keys.
function strip(box, chosen, left) {
  const tokens = [...box.querySelectorAll("[data-token]")];
  let current = -1;
  const choose = (index) => {
    if (tokens[current]) tokens[current].classList.remove("on");
    current = index;
    if (tokens[current]) { tokens[current].classList.add("on"); chosen(tokens[current], current); } else left();
  };
  const over = (event) => {
    const token = event.target.closest("[data-token]");
    if (token) choose(tokens.indexOf(token));
  };
  box.addEventListener("pointerover", over);
  box.addEventListener("click", over);
  box.addEventListener("pointerleave", () => choose(-1));
  box.addEventListener("blur", () => choose(-1));
  box.addEventListener("keydown", (event) => {
    const next = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (event.key === "Escape") choose(-1);
    if (next === undefined) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(tokens.length - 1, next)));
  });
  return choose;
}

// The likeliest tokens at the place of a token.
const tip = element("div");
tip.id = "tip"; tip.hidden = true; tip.setAttribute("role", "status");
document.body.append(tip);
for (const box of document.querySelectorAll("[data-surprise]")) {
  const all = data(box.dataset.surprise);
  strip(box, (token) => {
    const { token: name, bits, p, top } = all[Number(token.dataset.token)];
    tip.replaceChildren(element("b", `${name}  ${bits.toFixed(2)} bits, ${percent(p)}`));
    for (const [other, share] of top) {
      const row = element("div", undefined, tip);
      element(other === name ? "b" : "span", other, row).className = "text";
      element("span", percent(share), row);
      element("i", undefined, row).style.width = `${100 * share}%`;
    }
    tip.hidden = false;
    const place = token.getClientRects()[0];
    tip.style.left = `${Math.max(4, Math.min(place.left + scrollX, scrollX + document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${place.bottom + scrollY + 6}px`;
  }, () => { tip.hidden = true; });
}

// Maps of numbers as colors.
const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);
const mixed = (from, to, part) => from.map((low, index) => Math.round(low + part * (to[index] - low)));
function shade(value) { // -1 to 1
  const part = Math.sqrt(Math.min(1, Math.abs(value)));
  return mixed(color("--low"), color(value < 0 ? "--minus" : "--high"), part);
}
function paint(canvas, width, height, value) {
  canvas.width = width; canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  const known = new Map();
  for (let row = 0; row < height; row++) for (let column = 0; column < width; column++) {
    const found = value(row, column);
    if (found === null) continue; // stays transparent
    if (!known.has(found)) known.set(found, shade(found));
    image.data.set([...known.get(found), 255], 4 * (row * width + column));
  }
  context.putImageData(image, 0, 0);
}
const painters = [];
for (const canvas of document.querySelectorAll("canvas[data-map]")) {
  const { width, height, values } = data(canvas.dataset.map), read = bytes(values);
  painters.push(() => paint(canvas, width, height, (row, column) => read[row * width + column] / 127.5 - 1));
}

// Attention: small maps of all heads, a large one, and the text, in which a token shows where it looks.
const root = document.getElementById("attention-view");
if (root) {
  const { tokens, heads, windows } = data("attention-data"), T = tokens.length;
  for (const head of heads) { head.p = bytes(head.p); head.s = bytes(head.s); }
  const map = document.getElementById("map"), says = document.getElementById("attention-says");
  const text = document.getElementById("attention-text"), buttons = [...root.querySelectorAll(".heads button")];
  const spans = [...text.querySelectorAll("[data-token]")];
  let head = heads[0], view = "p", chosen = -1;
  const hidden = (row, column) => column > row || row - column >= windows[head.layer];
  const p = (row, column, one = head) => one.p[row * T + column] / 255;
  const score = (row, column) => head.lo + (head.s[row * T + column] / 255) * (head.hi - head.lo);
  const value = (row, column) => {
    if (view === "p") return hidden(row, column) ? null : p(row, column);
    if (view === "masked" && hidden(row, column)) return null;
    return score(row, column) / Math.max(Math.abs(head.lo), Math.abs(head.hi), 1e-9);
  };
  const small = () => buttons.forEach((button, index) => {
    paint(button.querySelector("canvas"), T, T, (row, column) => (column > row ? null : p(row, column, heads[index])));
  });
  const labels = tokens.map((token) => (token.length > 7 ? token.slice(0, 6) + "…" : token));
  const longest = Math.max(...labels.map((label) => label.length)), upright = longest < 2;
  let cell = 14, margin = 60;
  const large = () => {
    const style = getComputedStyle(document.documentElement), scale = window.devicePixelRatio || 1;
    margin = 14 + 8 * longest;
    cell = Math.max(6, Math.min(24, Math.floor((map.parentElement.clientWidth - margin - 4) / T)));
    const side = margin + T * cell + 2;
    map.width = map.height = side * scale;
    map.style.width = `${side}px`;
    const context = map.getContext("2d");
    context.scale(scale, scale);
    context.font = `${Math.min(13, cell + 1)}px ui-monospace, monospace`;
    context.textBaseline = "middle";
    labels.forEach((label, index) => {
      context.fillStyle = style.getPropertyValue(index === chosen ? "--accent" : "--dim");
      context.textAlign = upright ? "center" : "right";
      context.fillText(label, margin - (upright ? 10 : 5), margin + (index + 0.5) * cell);
      context.save();
      context.translate(margin + (index + 0.5) * cell, margin - (upright ? 10 : 5));
      if (!upright) context.rotate(-Math.PI / 2);
      context.textAlign = upright ? "center" : "left";
      context.fillText(label, 0, 0);
      context.restore();
    });
    for (let row = 0; row < T; row++) for (let column = 0; column < T; column++) {
      const found = value(row, column);
      if (found === null) continue;
      context.fillStyle = `rgb(${shade(found)})`;
      context.fillRect(margin + column * cell, margin + row * cell, cell - 1, cell - 1);
    }
    context.strokeStyle = style.getPropertyValue("--line");
    context.strokeRect(margin - 0.5, margin - 0.5, T * cell, T * cell);
    if (chosen >= 0) {
      context.strokeStyle = style.getPropertyValue("--accent");
      context.strokeRect(margin - 0.5, margin + chosen * cell - 0.5, T * cell, cell);
    }
  };
  const say = (row) => {
    const order = [...Array(T).keys()].filter((column) => !hidden(row, column)).sort((a, b) => p(row, b) - p(row, a));
    const parts = order.slice(0, 4).filter((column) => p(row, column) >= 0.005);
    says.textContent = `Token ${row + 1}, ${tokens[row]}, looks at ` +
      parts.map((column) => `${tokens[column]} (token ${column + 1}) ${percent(p(row, column))}`).join(", ") + ".";
  };
  const look = (row) => {
    chosen = row;
    spans.forEach((span, column) => {
      const seen = row >= 0 && !hidden(row, column);
      span.style.background = seen ? `rgba(${color("--high")}, ${0.85 * Math.sqrt(p(row, column))})` : "";
    });
    if (row >= 0) say(row); else says.textContent = "";
    large();
  };
  strip(text, (_token, index) => look(index), () => look(-1));
  map.addEventListener("pointermove", (event) => {
    const box = map.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - margin) / cell), column = Math.floor((event.clientX - box.left - margin) / cell);
    if (row < 0 || column < 0 || row >= T || column >= T) return;
    if (row !== chosen) look(row);
    const masked = hidden(row, column);
    says.textContent = `${tokens[row]} (token ${row + 1}) → ${tokens[column]} (token ${column + 1}): score ` +
      `${score(row, column).toFixed(1)}, ${masked ? "hidden by the mask" : percent(p(row, column))}.`;
  });
  map.addEventListener("pointerleave", () => look(-1));
  buttons.forEach((button, index) => button.addEventListener("click", () => {
    head = heads[index];
    buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    document.getElementById("head-name").textContent = head.name;
    map.setAttribute("aria-label", `Attention of head ${head.name}, a row for each token: mostly ${head.looks}.`);
    look(chosen);
  }));
  root.querySelectorAll(".views input").forEach((input) => input.addEventListener("change", () => { view = input.value; large(); }));
  painters.push(small, large);
  window.addEventListener("resize", large);
}
const paintAll = () => painters.forEach((painter) => painter());
paintAll();
for (const change of ["(prefers-color-scheme: dark)", "print"]) matchMedia(change).addEventListener("change", paintAll);
