"""Run the benchmarks: `python -m benchmarks [NAME ...]`, all of them by default."""

import importlib
import pkgutil
import sys

import benchmarks

available = sorted(
    m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"
)
wanted = sys.argv[1:] or available
unknown = [name for name in wanted if name not in available]
if unknown:
    sys.exit(f"unknown benchmark {unknown[0]!r}; there are: {', '.join(available)}")
for name in wanted:
    print(f"\n== {name} ==", flush=True)
    importlib.import_module(f"benchmarks.{name}").main()
