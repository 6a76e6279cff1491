"""The pages about the Python API, from signatures and docstrings as griffe reads them; nothing is imported."""

import posixpath
import re
from collections.abc import Iterator, Mapping

import griffe

import tutelage
from reference import types
from reference.markdown import cell, code, docstring, fenced, page, table
from reference.source import package

TOPICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "workflows": (
        "Workflows",
        (
            "commands.pretrain.run",
            "commands.sft.run",
            "commands.reward.run",
            "commands.improve.run",
            "commands.dpo.run",
            "commands.rejection.run",
            "commands.distill.run",
            "commands.sample.run",
            "commands.evaluate.run",
            "commands.raters.run",
            "commands.plan.run",
            "commands.serve.run",
            "commands.loading",
            "commands.results",
            "base.errors",
        ),
    ),
    "config": ("Settings that commands share", ("base.config.sections", "base.config.bases")),
    "data": ("Data", ("data.records", "data.formats", "data.chat_endpoint", "data.chat_endpoint")),
    "core": (
        "Core: tensors in, tensors out",
        (
            "core.shapes",
            "core.returns",
            "core.baselines",
            "core.advantages",
            "core.groups",
            "core.surrogates",
            "core.kl",
            "core.shaping",
            "core.values",
            "core.preferences",
            "core.scoring_losses",
            "core.natural",
            "core.reduce",
            "core.pieces",
            "core.batch",
            "core.rows",
        ),
    ),
    "algorithms": ("Recipes", ("algorithms.recipe", "algorithms.slots", "algorithms.override", "algorithms.registry")),
    "models": (
        "Models and engines",
        ("models.engine_model", "models.policy", "models.heads", "models.budget", "engines.interface"),
    ),
    "rewards": (
        "Rewards",
        ("rewards.reward", "rewards.scores", "rewards.function", "rewards.rules", "rewards.composite", "rewards.judge"),
    ),
    "rollout": ("Rollouts", ("rollout.generator", "rollout.local")),
    "train": (
        "Training loops",
        (
            "train.rl.improve",
            "train.rl.setup",
            "train.rl.rollouts",
            "train.supervised.fit",
            "train.learner",
            "train.run.loop",
            "train.run.folder",
        ),
    ),
    "stats": ("Statistics", ("stats",)),
}
"""The pages: file, title, modules in order. A package stands for its modules."""
INTRODUCTION = """\
`import tutelage as tt` has the functions of the command line, their settings and results, and loaders of models and
data; heavy imports happen when a name is first used. [Tutelage from Python](../../python.md) shows how to use them.
The settings of each function are those of its command ([command line](../cli/README.md)).

The other pages describe the lower layers, for algorithms and loops of your own. Names that begin with `_` are
internal."""


def pages() -> dict[str, str]:
    """The pages, and `types.json`: where the types in their signatures are described, for the links of the site."""
    found = {f"reference/api/{name}.md": topic(*entry) for name, entry in TOPICS.items()}
    places = types.described(found, is_alias)
    return found | {"reference/api/README.md": index(places), "types.json": types.links(places)}


def index(places: Mapping[str, str]) -> str:
    listed = "\n".join(f"- [{title}]({name}.md)" for name, (title, _) in TOPICS.items())
    return page("Python", INTRODUCTION, listed, "## The names of the package", names(places))


def names(places: Mapping[str, str]) -> str:
    rows = []
    for name, module in sorted(exported()):
        found = package()[module][name]
        place = places.get(found.canonical_path, "")
        link = posixpath.relpath(place, "reference/api") if place else ""
        rows.append((f"[`tt.{name}`]({link})" if link else f"`tt.{name}`", cell(first_sentence(found))))
    return table(("name", ""), rows)


def exported() -> Iterator[tuple[str, str]]:
    """The names that `import tutelage` offers, with their modules."""
    for name, module in tutelage._PLACES.items():
        home = getattr(getattr(tutelage, name), "__module__", None)
        is_ours = isinstance(getattr(tutelage, name), type) and home is not None
        yield name, (home if is_ours else module).removeprefix("tutelage.")


def first_sentence(found: griffe.Object | griffe.Alias) -> str:
    said = found.docstring.value if found.docstring else ""
    return " ".join(said.split("\n\n")[0].split())


def topic(title: str, modules: tuple[str, ...]) -> str:
    parts = [part for name in modules for module in modules_of(name) for part in of_module(module)]
    return page(title, *parts)


def modules_of(name: str) -> Iterator[griffe.Module]:
    found = package()[name]
    inner = [one for one in found.modules.values() if not one.is_alias and not one.name.startswith("_")]
    if inner:
        yield from (
            module
            for each in sorted(inner, key=lambda one: one.name)
            for module in modules_of(each.path.removeprefix("tutelage."))
        )
    else:
        yield found


def of_module(module: griffe.Module) -> Iterator[str]:
    members = [one for one in module.members.values() if is_public(one) and (one.is_class or one.is_function)]
    aliases = [one for one in module.members.values() if is_alias(one)]
    if not members and not aliases:
        return
    yield f"## {module.path}"
    if module.docstring:
        yield docstring(module.docstring.value)
    if aliases:
        yield table(("type", "is", ""), map(of_alias, aliases))
    for member in members:
        yield from of_class(member) if member.is_class else of_function(member, f"### {member.name}")


def is_public(member: griffe.Object | griffe.Alias) -> bool:
    return not member.is_alias and not member.name.startswith("_") and member.docstring is not None


def is_alias(member: griffe.Object | griffe.Alias) -> bool:
    """Whether it is a name for a type, such as `Level: TypeAlias = Literal[...]`."""
    if member.is_alias or not member.is_attribute or not re.fullmatch(r"[A-Z][a-z]\w*", member.name):
        return False
    value = str(member.value)
    return not re.match(r"(?:TypeVar|ParamSpec|NewType)\(", value)


def of_alias(alias: griffe.Attribute) -> tuple[str, str, str]:
    said = cell(alias.docstring.value) if alias.docstring else ""
    return code(alias.name), code(" ".join(str(alias.value).split())), said


def of_function(function: griffe.Function, heading: str) -> Iterator[str]:
    yield heading
    yield fenced("python", [signature(function)])
    yield docstring(function.docstring.value)


def of_class(cls: griffe.Class) -> Iterator[str]:
    yield f"### {cls.name}"
    bases = ", ".join(map(str, cls.bases))
    yield fenced("python", [f"class {cls.name}({bases})" if bases else f"class {cls.name}"])
    yield docstring(cls.docstring.value)
    fields = [one for one in cls.attributes.values() if not one.name.startswith("_") and not one.is_alias]
    rows = [(code(f"{one.name}: {one.annotation}"), *described(one)) for one in fields if one.annotation]
    if rows:
        yield table(("field", "default", "meaning"), rows)
    for method in cls.functions.values():
        if is_public(method):
            yield from of_function(method, f"#### {cls.name}.{method.name}")


def described(field: griffe.Attribute) -> tuple[str, str]:
    value = "–" if field.value is None else code(" ".join(str(field.value).split()))
    return value, cell(field.docstring.value) if field.docstring else ""


def signature(function: griffe.Function) -> str:
    """The signature, on one line or with a line for each parameter."""
    kinds = griffe.ParameterKind
    given, starred = [], False
    for one in function.parameters:
        if one.name in ("self", "cls") and function.parent is not None and function.parent.is_class:
            continue
        if one.kind is kinds.var_positional:
            starred = True
        if one.kind is kinds.keyword_only and not starred:
            given.append("*")
            starred = True
        mark = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(one.kind, "")
        hint = f": {one.annotation}" if one.annotation is not None else ""
        usual = f"{' = ' if hint else '='}{one.default}" if one.default is not None and not mark else ""
        given.append(f"{mark}{one.name}{hint}{usual}")
    end = f" -> {function.returns}" if function.returns is not None else ""
    line = f"{function.name}({', '.join(given)}){end}"
    return line if len(line) <= 90 else "\n".join([f"{function.name}(", *(f"    {one}," for one in given), f"){end}"])
