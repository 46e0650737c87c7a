"""The batch and streaming writers of the data source."""
