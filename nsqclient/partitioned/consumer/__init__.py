"""Parts of the consumer of partitioned topics."""
