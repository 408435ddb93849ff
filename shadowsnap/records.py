"""`dataclass`, `field`, `replace` and `NamedTuple` as the library has them, without their price.

A hook is a new process before every tool call. Importing `dataclasses` and `typing` and letting
them compile the methods and annotations of the classes that take a snapshot costs 35 ms there,
three times the start of Python. These do the same without compiling anything, for what this
package uses. Everything else that works on dataclasses (`fields`, `asdict`, `is_dataclass`) works
on these classes too. `Any` is for annotations, which nobody looks at while the program runs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import Any as Any
    from typing import NamedTuple as NamedTuple
else:
    Any = object
    _MISSING = object()

    class field:
        def __init__(
            self, *, default=_MISSING, default_factory=_MISSING, repr=True, compare=True, hash=None, init=True
        ):
            self.name = self.annotation = ""
            self.default = default
            self.default_factory = default_factory
            self.repr = repr
            self.compare = compare

    def dataclass(cls=None, /, *, frozen=False):
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen)
        fields = {each.name: each for each in getattr(cls, "__record_fields__", ())}  # of a class above
        fields.update((name, _field_of(cls, name)) for name in cls.__annotations__)
        cls.__record_fields__ = tuple(fields.values())
        cls.__dataclass_fields__ = _RealFields(frozen)
        cls.__match_args__ = tuple(fields)
        for method in (_init(cls), __repr__, __eq__, *((__hash__, __setattr__, __delattr__) if frozen else ())):
            if method.__name__ not in cls.__dict__:
                setattr(cls, method.__name__, method)
        if not frozen:
            cls.__hash__ = None
        return cls

    def replace(record, /, **changes):
        if not hasattr(record, "__record_fields__"):  # a real dataclass
            import dataclasses

            return dataclasses.replace(record, **changes)
        kept = {each.name: record.__dict__[each.name] for each in record.__record_fields__}
        return type(record)(**(kept | changes))

    def _field_of(cls, name):
        given = cls.__dict__.get(name, _MISSING)
        found = given if isinstance(given, field) else field(default=given)
        found.name = name
        found.annotation = cls.__annotations__[name]
        if found.default is not _MISSING:
            setattr(cls, name, found.default)
        elif name in cls.__dict__:
            delattr(cls, name)
        return found

    def _init(cls):
        kind, names = cls.__name__, cls.__match_args__
        needed = frozenset(names)
        defaults = {each.name: each.default for each in cls.__record_fields__ if each.default is not _MISSING}
        factories = {
            each.name: each.default_factory
            for each in cls.__record_fields__
            if each.default_factory is not _MISSING
        }

        def __init__(self, *args, **given):
            values = dict(zip(names, args, strict=False))
            if len(values) < len(args) or not given.keys().isdisjoint(values):
                raise TypeError(f"{kind}() got too many arguments, or one of them twice")
            values.update(given)
            for name, make in factories.items():
                if name not in values:
                    values[name] = make()
            own = self.__dict__  # also past the guard of a frozen class
            own.update(defaults)
            own.update(values)
            if own.keys() != needed:
                wrong = ", ".join(sorted(own.keys() ^ needed))
                raise TypeError(f"{kind}() is missing an argument or does not know one: {wrong}")

        return __init__

    def __repr__(self):
        told = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in _fields(self) if each.repr)
        return f"{type(self).__qualname__}({told})"

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return _compared(self) == _compared(other)

    def __hash__(self):
        return hash(_compared(self))

    def __setattr__(self, name, value):
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name):
        raise _frozen(f"cannot delete field {name!r}")

    def _fields(record):
        return type(record).__record_fields__

    def _compared(record):
        return tuple(getattr(record, each.name) for each in _fields(record) if each.compare)

    def _frozen(message):
        from dataclasses import FrozenInstanceError

        return FrozenInstanceError(message)

    class _RealFields:
        """What `dataclasses` keeps on a class, made when it first asks."""

        def __init__(self, frozen):
            self.frozen = frozen

        def __get__(self, record, cls):
            import dataclasses

            specs = []
            for each in cls.__record_fields__:
                options = {"repr": each.repr, "compare": each.compare}
                for name in ("default", "default_factory"):
                    if getattr(each, name) is not _MISSING:
                        options[name] = getattr(each, name)
                specs.append((each.name, each.annotation, dataclasses.field(**options)))
            twin = dataclasses.make_dataclass(cls.__name__, specs, frozen=self.frozen)
            cls.__dataclass_fields__ = twin.__dataclass_fields__
            return twin.__dataclass_fields__

    class _TupleMaker(type):
        def __new__(kind, name, bases, namespace):
            from collections import namedtuple

            fields = namespace.get("__annotations__", {})
            defaults = [namespace[each] for each in fields if each in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])
            for key, value in namespace.items():
                if key not in fields and key not in ("__annotations__", "__module__", "__qualname__"):
                    setattr(made, key, value)
            made.__annotations__ = fields
            return made

    NamedTuple = type.__new__(_TupleMaker, "NamedTuple", (), {})
