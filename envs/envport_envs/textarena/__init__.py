"""Games of TextArena: `textarena:TowerOfHanoi-v0`."""
