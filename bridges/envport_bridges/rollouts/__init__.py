"""Opens and plays episodes from Python, in this process or through a gateway. For any trainer."""
