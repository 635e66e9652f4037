"""The type checker of the test run: beartype, with whole numbers where floats are asked for."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
