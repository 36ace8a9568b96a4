"""What the commands share: opening a store, parameters, tables of output."""
