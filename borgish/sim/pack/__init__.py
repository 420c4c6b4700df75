"""``fauxmaster pack``: how full a cell can be packed, how small it can be, and what fits as tasks arrive."""
