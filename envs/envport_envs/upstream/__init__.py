"""What adapters to foreign environment servers share: addresses, requests, tasks and faults."""
