"settings: every rule on every side of its edge, and what no float can hold."
import math, pytest
from collections.abc import Callable
from dataclasses import dataclass, field
from rlhf_nb.base.settings import check_number, check_settings

@dataclass(frozen=True)
class Settings:
    lr:float=1e-3
    n_steps:int=10
    warmup:int=0
    frac:float=.5
    norm:float=1.
    name:str="a"
    on:bool=True
    fn:Callable=print
    prompts:list=field(default_factory=list)
    anything:object=None
    maybe:float|None=None
    def __post_init__(self): check_settings(
        self, above_0="lr n_steps", at_least_0="warmup", share="frac", infinite="norm", choices=dict(name=("a", "b")))

@pytest.mark.parametrize("given", [
    dict(lr=1e-300), dict(lr=5), dict(n_steps=1), dict(n_steps=10**30), dict(warmup=0), dict(frac=0.), dict(frac=1), dict(norm=math.inf),
    dict(norm=-math.inf), dict(norm=-1.), dict(name="b"), dict(on=False), dict(fn=len), dict(prompts=[1]), dict(anything=3), dict(maybe=2.)])
def test_accepts(given): Settings(**given)

@pytest.mark.parametrize("name, value, kind, rule", [
    ("lr", 0, ValueError, "above 0"), ("lr", -1e-9, ValueError, "above 0"), ("lr", math.nan, ValueError, "a finite number"),
    ("lr", math.inf, ValueError, "a finite number"), ("lr", 10**400, ValueError, "a finite number"), ("lr", "1", TypeError, "a number"),
    ("lr", None, TypeError, "a number"), ("lr", True, TypeError, "a number"), ("lr", 1j, TypeError, "a number"),
    ("n_steps", 0, ValueError, "above 0"), ("n_steps", 2., TypeError, "a whole number"), ("n_steps", True, TypeError, "a whole number"),
    ("n_steps", math.inf, TypeError, "a whole number"), ("n_steps", "3", TypeError, "a whole number"), ("warmup", -1, ValueError, "0 or more"),
    ("frac", -.01, ValueError, "from 0 to 1"), ("frac", 1.01, ValueError, "from 0 to 1"), ("frac", math.nan, ValueError, "a finite number"),
    ("norm", math.nan, ValueError, "a finite number"), ("name", "c", ValueError, r"one of \['a', 'b'\]"), ("name", 1, TypeError, "a text"),
    ("on", 1, TypeError, "True or False"), ("on", "yes", TypeError, "True or False"), ("fn", 3, TypeError, "a function"),
    ("prompts", (1,), TypeError, "of type list")])
def test_refuses_with_name_rule_and_value(name, value, kind, rule):
    with pytest.raises(kind, match=rf"^Settings\.{name} must be {rule}, got ") as e: Settings(**{name: value})
    assert str(e.value).endswith(repr(value))

def test_one_number_of_a_call():
    for rule, good, bad in (("finite", (-1., 0, 3), ()), ("above 0", (1e-9, 2), (0, -1)), ("0 or more", (0, 1.), (-1e-9,)),
                            ("1 or more", (1, 2.5), (.99, 0)), ("from 0 to 1", (0, .5, 1), (-.1, 1.1))):
        for x in good: check_number("f: x", x, rule)
        for x in bad:
            with pytest.raises(ValueError, match=f"^f: x must be {rule}, got {x}"): check_number("f: x", x, rule)
        for x in (math.nan, math.inf, -math.inf, 10**400):
            with pytest.raises(ValueError, match="f: x must be a finite number"): check_number("f: x", x, rule)
        for x in ("1", None, True):
            with pytest.raises(TypeError, match="f: x must be a number"): check_number("f: x", x, rule)
    with pytest.raises(ValueError, match="no rule of check_number 'above 1'; did you mean 'above 0'?"): check_number("n", 3, "above 1")
    check_number("n", 3, "above 0", int)
    with pytest.raises(TypeError, match="n must be a whole number, got 3.0"): check_number("n", 3., "above 0", int)
