"""What one run is: a config, the parts of its model, how they start and when they move; arms as data; the model."""
