"""What a callable asks for: its parameters, their resolved annotations, and which of them take the run's context."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from glassloop.core.context import RunContext
from glassloop.core.errors import ToolDefinitionError
from glassloop.tools.names import snake_case

ParameterKind = inspect.Parameter
REQUIRED: Any = inspect.Parameter.empty

_STANDS_FOR = ("__value__", "__supertype__", "__bound__")  # of an alias, a `NewType` and a type variable
_CONTEXT_NAME = re.compile(r"\bRunContext\b")
_FORWARD = re.compile(r"ForwardRef\((?P<written>'[^']*')[^)]*\)")  # from Python 3.14 on it says more than was written


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool function.

    Args:
        name: as the function has it.
        annotation: resolved; `Any` where there is none.
        default: `REQUIRED` where there is none.
        kind: one of `inspect.Parameter`'s kinds.
        is_context: whether it takes the run's context; such a parameter is no business of the model.
    """

    name: str
    annotation: Any
    default: Any
    kind: Any
    is_context: bool = False


@dataclass(frozen=True, slots=True)
class Callee:
    """A callable, looked into.

    Args:
        origin: `module:qualified_name`, for error messages.
        name: the tool's name unless another is given; empty for a lambda.
        docstring: of the function, or of the class for a callable object.
        call_docstring: of the function itself.
        parameters: in order; those that a `partial` has bound by keyword are left out.
        is_async: whether calling it gives an awaitable or an async generator.
        unbound: a method written in a class body, still without its object.
    """

    origin: str
    name: str
    docstring: str
    call_docstring: str
    parameters: tuple[Parameter, ...]
    is_async: bool
    unbound: bool


def look_into(function: Callable[..., Any]) -> Callee:
    """Read the signature of a function, method, partial or callable object.

    Raises:
        ToolDefinitionError: it has no signature, or an annotation that cannot be resolved.
    """
    inner = _innermost(function)
    origin = origin_of(function)
    if isinstance(function, type | classmethod):
        raise ToolDefinitionError(f"{origin} is a class or class method, not a function: pass a function or an object.")
    try:
        signature = _signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise ToolDefinitionError(f"{origin} cannot be a tool, its signature cannot be read: {error}.") from error
    raw = list(signature.parameters.values())
    unbound = _is_unbound_method(inner, function, raw)
    hidden = _bound_by_keyword(function)
    names = _Names(inner)
    read = (_read(parameter, names, origin) for parameter in raw[unbound:] if parameter.name not in hidden)
    name, docstring = _name_and_docstring(function, inner)
    return Callee(origin, name, docstring, inner.__doc__ or "", tuple(read), _is_async(function), unbound)


def takes_context_first(function: Callable[..., Any]) -> bool:
    """Whether the first parameter of a function takes the run's context."""
    return any(parameter.is_context for parameter in look_into(function).parameters[:1])


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)  # PEP 649: evaluated one by one, later
    return inspect.signature(function)


def origin_of(function: object) -> str:
    """`module:qualified_name` of a callable."""
    inner = _innermost(function)
    named = type(function) if _is_callable_object(function) else inner
    return f"{getattr(named, '__module__', None) or '?'}:{getattr(named, '__qualname__', type(inner).__name__)}"


def _read(parameter: inspect.Parameter, names: _Names, origin: str) -> Parameter:
    annotation: Any = Any if parameter.annotation is REQUIRED else parameter.annotation
    try:
        annotation = names.evaluate(annotation)
        is_context = _takes_context(annotation)
    except Exception as error:
        written = _FORWARD.sub(r"\g<written>", repr(annotation))
        if _CONTEXT_NAME.search(written):
            return Parameter(parameter.name, RunContext, parameter.default, parameter.kind, is_context=True)
        raise ToolDefinitionError(
            f"{origin}, parameter {parameter.name!r}: the annotation {written} cannot be resolved ({error}). "
            "Make the name importable at run time: not only under TYPE_CHECKING, and defined before the tool."
        ) from error
    return Parameter(parameter.name, annotation, parameter.default, parameter.kind, is_context)


def _takes_context(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _takes_context(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return any(_takes_context(member) for member in get_args(annotation))
    candidate = origin or annotation
    if isinstance(candidate, type):
        return issubclass(candidate, RunContext)
    named = (getattr(candidate, name, None) for name in _STANDS_FOR)
    return any(_takes_context(one) for one in named if one is not None)


class _Names:
    """The names that a function's annotations may use: its module's, and those of the scopes it stands in."""

    def __init__(self, inner: object) -> None:
        self._inner: Any = inspect.unwrap(inner) if callable(inner) else inner
        self._globals: dict[str, Any] = {"RunContext": RunContext, **getattr(self._inner, "__globals__", {})}
        self._locals: Mapping[str, Any] | None = None

    def evaluate(self, annotation: Any) -> Any:
        try:
            return self._evaluate(annotation, {})
        except NameError:
            if self._locals is None:
                self._locals = _enclosing_names(self._inner)
            return self._evaluate(annotation, self._locals)

    def _evaluate(self, annotation: Any, local_names: Mapping[str, Any]) -> Any:
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        return get_type_hints(holder, self._globals, dict(local_names), include_extras=True)["it"]


def _enclosing_names(function: Any) -> dict[str, Any]:
    """Names of the scopes around a function: those still running (a class defined in a test), and its closure."""
    names = {one.__name__: one for one in getattr(function, "__type_params__", ())}
    for frame in _frames_around(function):
        names = {**frame.f_locals, **names}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False) if _has_code(function) else ()
    for name, cell in cells:
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return names


def _frames_around(function: Any) -> Iterator[types.FrameType]:
    qualified_name: str = getattr(function, "__qualname__", "")
    frame = inspect.currentframe()
    while frame is not None:
        encloses = qualified_name.startswith(f"{frame.f_code.co_qualname}.")
        if encloses and frame.f_globals is getattr(function, "__globals__", None):
            yield frame
        frame = frame.f_back


def _has_code(function: Any) -> bool:
    return isinstance(function, types.FunctionType)


def _innermost(function: object) -> Any:
    """The plain function inside partials, methods and callable objects."""
    while True:
        match function:
            case functools.partial():
                function = cast("functools.partial[Any]", function).func
            case types.MethodType() | staticmethod() | classmethod():
                function = cast("types.MethodType", function).__func__
            case _ if _is_callable_object(function):
                function = type(function).__call__
            case _:
                return function


def _is_callable_object(function: object) -> bool:
    known = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, staticmethod)
    has_call = isinstance(getattr(type(function), "__call__", None), types.FunctionType)  # noqa: B004  # its kind matters
    return has_call and not isinstance(function, known)


def _bound_by_keyword(function: object) -> set[str]:
    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound |= set(function.keywords)
        function = function.func
    return bound


def _is_unbound_method(inner: Any, function: object, parameters: list[inspect.Parameter]) -> bool:
    if inner is not function or not parameters or parameters[0].annotation is not REQUIRED:
        return False
    scope = str(getattr(inner, "__qualname__", "")).rpartition(".")[0]
    return parameters[0].name in ("self", "cls") and bool(scope) and not scope.endswith("<locals>")


def _name_and_docstring(function: object, inner: Any) -> tuple[str, str]:
    while isinstance(function, functools.partial):
        function = function.func
    if _is_callable_object(function):
        docstring = inspect.getdoc(type(function)) or inner.__doc__
        return snake_case(type(function).__name__), docstring or ""
    name = str(getattr(inner, "__name__", ""))
    return "" if name == "<lambda>" else name, inner.__doc__ or ""


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    called = type(function).__call__ if _is_callable_object(function) else function
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
