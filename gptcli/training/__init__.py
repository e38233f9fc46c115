"""An update of the weights: batches, loss, gradients, optimizers, schedule, evaluation."""
