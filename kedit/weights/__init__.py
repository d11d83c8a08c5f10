"""What editors of weights share: which matrices they may train, the loop, losses, low-rank factors and their adapter."""
