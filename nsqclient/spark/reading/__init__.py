"""The batch and streaming readers of the data source."""
