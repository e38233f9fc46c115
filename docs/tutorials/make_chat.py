"""Print a made-up WhatsApp export, for the tutorial about chats: two friends, some months, the same few subjects.

python -m docs.tutorials.make_chat > chat.txt
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta

MESSAGES = 6000
SPEAKERS = ("Anna", "Ben")

TALKS = (
    (
        ("Are you {home} already?", "Still {place}. Back {when}.", "Tell me when you are, I made {food}."),
        ("On my way, the train is {late} late", "Again?", "Every {day}, it seems.", "Then I'll keep the {food} warm"),
        ("Did you catch the train?", "Just about", "{late} later and I'd be {place} all night", "Lucky you 😅"),
    ),
    (
        ("{food} or {food} {when}?", "{food}, please!", "We had that on {day}", "And it was good 😊"),
        ("Can you bring {thing}?", "Sure. Anything else?", "{thing}, if they have it", "They had no {thing} on {day}"),
        ("I'm making {food}", "Do we have {thing}?", "No. And no {thing} either", "I'll stop by the shop {when}"),
    ),
    (
        ("Have you seen {film}?", "Half of it. Fell asleep 😴", "It gets better!", "That's what you said about {film}"),
        ("{film} is on {when}", "Shall we?", "Only if you don't talk the whole time", "I never do that!"),
        ("The cinema {place} shows {film}", "On {day}?", "On {day}, at eight", "I'm in"),
    ),
    (
        ("How was it {place}?", "Long. {person} talked for {late}", "About what?", "I stopped listening 😅"),
        ("{person} says hello", "How is {person}?", "Busy. Moving house on {day}", "Do they need help?"),
        ("Don't forget, {person} has a birthday on {day}", "Oh no", "You forgot", "I'll find something {when}"),
    ),
    (
        ("Is it raining {place}?", "Pouring ☔", "Take the umbrella then", "It's {place}, where I left it on {day}"),
        ("Look outside!", "What is it?", "Snow!", "It never snows {place}"),
        ("Shall we go for a walk {when}?", "If it stays dry", "It won't, but bring the dog", "He's asleep"),
    ),
)
WORDS = {
    "home": ("home", "back", "out of the office", "there"),
    "place": ("at the station", "at work", "at the library", "in town", "at my sister's", "by the river"),
    "when": ("tonight", "tomorrow", "in an hour", "after six", "at the weekend", "before dinner"),
    "late": ("ten minutes", "half an hour", "twenty minutes", "an hour"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "food": ("soup", "pasta", "lentils", "pancakes", "curry", "potato salad", "dumplings"),
    "thing": ("bread", "milk", "onions", "rice", "coffee", "lemons", "matches", "stamps"),
    "film": ("the one with the lighthouse", "that film about bees", "the long one", "the film from the train"),
    "person": ("Clara", "my mother", "David", "your brother", "the neighbor"),
}


def chat(messages: int, seed: int = 1) -> Iterator[str]:
    """The lines of the export, the same ones for the same seed."""
    rng = random.Random(seed)
    moment = datetime(2025, 1, 6, 8, 30)
    written = 0
    while written < messages:
        speakers = rng.sample(SPEAKERS, 2)
        for turn, message in enumerate(rng.choice(rng.choice(TALKS))):
            text = message
            while "{" in text:
                kind = text[text.index("{") + 1 : text.index("}")]
                text = text.replace(f"{{{kind}}}", rng.choice(WORDS[kind]), 1)
            moment += timedelta(minutes=rng.randint(1, 4))
            yield f"{moment:%d/%m/%Y, %H:%M} - {speakers[turn % 2]}: {text[0].upper()}{text[1:]}\n"
            written += 1
        moment += timedelta(hours=rng.randint(1, 14))


if __name__ == "__main__":
    sys.stdout.writelines(chat(MESSAGES))
