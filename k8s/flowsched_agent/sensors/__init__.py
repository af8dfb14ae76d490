"""What a machine says of itself: memcached counters and CPU times."""
