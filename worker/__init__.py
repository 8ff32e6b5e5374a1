"""The worker fleet: claims calls from Redis, judges them, carries them out, and publishes the classified replies."""
