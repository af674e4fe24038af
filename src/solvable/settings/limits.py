"""Upper limits on sizes and times, so that nothing a visitor types keeps the machine busy for ever."""

from collections.abc import Mapping

# Largest values of counts that determine the cost of a computation.
MOST: Mapping[str, float] = {
    "width": 5000,
    "skills": 1e6,
    "basis": 1e9,
    "samples": 1e9,
    "shots": 1e6,
    "neurons_per_skill": 1e6,
    "outputs": 1e5,
    "features": 1e9,
    "batch_size": 1e9,
    "modes": 1e7,
    "dimension": 2000,
    "seeds": 64,
    "per_decade": 40,
    "key": 2**31 - 1,
    "max_steps": 1e6,
}
MOST_ENTRIES = 2000
MOST_ROWS = 16
MOST_TIMES = 400
LAST_TIME = 1e12
LONGEST_NUMBER = 64
LONGEST_LIST = 4000
# Seconds that a calculation of each kind may take before it is stopped.
SECONDS: Mapping[str, float] = {
    "theory": 120.0,
    "cards": 60.0,
    "plane": 180.0,
    "simulation": 600.0,
    "diagnosis": 120.0,
    "inference": 180.0,
    "scene": 3600.0,
    "warm-up": 300.0,
}
