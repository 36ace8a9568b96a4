"""Commands that look at a store and say what is wrong with it."""
