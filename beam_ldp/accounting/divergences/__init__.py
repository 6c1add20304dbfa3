"""How far apart two distributions are: hockey sticks, moments, grids of losses."""
