"""What a model may ask of the index, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import InvalidSpec
from fornada.core.ports import BundleFile
from fornada.core.specs import spec_from_table
from fornada.node.provision.engines import ENGINE_NEEDS, with_engine
from fornada.node.provision.requirements import allows_python, asked_by, normalised, parse_requirements, script_header

HEADER = """\
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "numpy==2.4.6",  # with a comment
#   "rich",
# ]
# ///
import numpy
"""


def texts(*lines: str) -> list[str]:
    return [requirement.text for requirement in parse_requirements(lines, where="requirements.txt")]


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy==2.4.6",
        "torch==2.13.0+cpu",
        "Pillow >= 11, < 13",
        "uvicorn[standard]==0.34",
        "a.b-c_d~=1.4.2",
        'tomli>=2 ; python_version < "3.11"',
        "x===1.0",
        "x!=1.*",
        "numpy (>=1.26,<3)",
        "numpy==2.4.6   # the newest",
    ],
)
def test_names_and_versions_are_taken(line):
    assert len(texts(line)) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--index-url https://evil.example/simple", "options"),
        ("-i https://evil.example", "options"),
        ("--extra-index-url=https://evil.example", "options"),
        ("--find-links /tmp", "options"),
        ("-e .", "options"),
        ("-r other.txt", "options"),
        ("--no-binary :all:", "options"),
        ("numpy --no-binary numpy", "no requirement"),
        ("git+https://example.com/x.git", "address"),
        ("x @ https://example.com/x.whl", "address"),
        ("x@https://example.com/x.whl", "address"),
        ("x @ file:///etc", "address"),
        ("file:///etc/passwd", "address"),
        ("https://example.com/x.tar.gz", "address"),
        ("./x", "path"),
        ("../x", "path"),
        ("/tmp/x", "path"),
        ("x/y", "path"),
        ("x-1.0.tar.gz", "path"),
        ("x-1.0-py3-none-any.whl", "path"),
        ("${HOME}", "no requirement"),
        ("numpy==${VERSION}", "no requirement"),
        ("numpy==2.4.6 --hash=sha256:00", "hashes"),
        ("numpy==2.4.6 \\", "hashes"),
        ("numpy, rich", "no requirement"),
        ("numpy rich", "no requirement"),
        ("==1.0", "no requirement"),
    ],
)
def test_whatever_would_change_where_packages_come_from_is_refused_with_its_line(line, reason):
    with pytest.raises(InvalidSpec, match=reason) as refusal:
        parse_requirements(["rich", "", line], where="requirements.txt")
    assert "requirements.txt, line 3" in refusal.value.message
    assert line[:20] in refusal.value.message
    assert "\n" not in refusal.value.message


def test_comments_and_empty_lines_are_left_out():
    assert texts("# all we need", "", "  numpy  # or so", "   ") == ["numpy"]


@given(st.text(max_size=60))
def test_what_passes_is_one_line_that_a_resolver_reads_as_a_name_with_versions(text):
    try:
        found = parse_requirements([text], where="requirements.txt")
    except InvalidSpec:
        return
    for requirement in found:
        assert requirement.text.isprintable() and "\n" not in requirement.text
        assert requirement.text[0].isalnum() and requirement.text[0].isascii()
        assert "@" not in requirement.text and "/" not in requirement.text and "$" not in requirement.text
        assert " -" not in requirement.text.split(";")[0]


@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,12}[A-Za-z0-9])?", fullmatch=True))
def test_every_name_of_a_project_is_taken(name):
    (requirement,) = parse_requirements([f"{name}==1.0"], where="requirements.txt")
    assert requirement.name == normalised(name)
    assert requirement.pinned == "1.0"


def test_a_line_full_of_spaces_is_refused_at_once():
    with pytest.raises(InvalidSpec, match="no requirement"):
        parse_requirements(["numpy" + " " * 100_000 + "!"], where="requirements.txt")  # hours, were each way to share them out tried
    assert texts("numpy" + " " * 100_000 + "== 2.4.6") == ["numpy== 2.4.6"]


@pytest.mark.parametrize("toml", ["a = " + "[" * 5000, "a = " + "9" * 5000], ids=["deep", "long"])
def test_a_script_header_that_no_parser_bears_is_refused(toml):
    with pytest.raises(InvalidSpec, match="no TOML"):
        script_header(f"# /// script\n# {toml}\n# ///\n", where="model.py")


def test_a_bound_that_is_no_number_of_a_python_is_left_to_the_resolver():
    assert allows_python(">=" + "9" * 5000, "3.11.7")


def test_a_script_header_is_read():
    assert script_header(HEADER, where="model.py") == (("numpy==2.4.6", "rich"), ">=3.11")
    assert script_header("import numpy\n", where="model.py") == ((), "")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("# /// script\n# dependencies = []\n", "no closing"),
        ("# /// script\n# dependencies = [\n# ///\n", "no TOML"),
        ('# /// script\n# dependencies = "x"\n# ///\n', "list of strings"),
        ("# /// script\n# ///\n\n# /// script\n# ///\n", "more than one"),
    ],
)
def test_a_broken_script_header_is_refused(source, reason):
    with pytest.raises(InvalidSpec, match=reason):
        script_header(source, where="model.py")


def test_model_toml_comes_before_requirements_txt_and_that_before_the_header():
    files = {"requirements.txt": BundleFile(b"from-file\n"), "model.py": BundleFile(HEADER.encode())}
    entry = {"entry": "model.py"}

    def names(python, files):
        return [requirement.name for requirement in asked_by(spec_from_table({"name": "@t/a", "python": python}), files).requirements]

    assert names({**entry, "dependencies": ["from-toml"]}, files) == ["from-toml"]
    assert names(entry, files) == ["from-file"]
    assert names(entry, {"model.py": files["model.py"]}) == ["numpy", "rich"]
    assert names(entry, {}) == []


def test_a_dependency_in_model_toml_names_its_place():
    with pytest.raises(InvalidSpec, match=r"\[python\] dependencies: '-e \.'"):
        asked_by(spec_from_table({"name": "@t/a", "python": {"dependencies": ["-e ."]}}), {})


@pytest.mark.parametrize(
    ("requires", "version", "holds"),
    [
        (">=3.11", "3.11.7", True),
        (">=3.12", "3.11.7", False),
        (">=3.9,<3.12", "3.11.7", True),
        ("<3.11", "3.11.7", False),
        ("==3.11.*", "3.11.7", True),
        ("==3.12.*", "3.11.7", False),
        ("!=3.11.7", "3.11.7", False),
        ("~=3.11", "3.13.1", True),
        ("~=3.11.2", "3.12.0", False),
        ("<=3.11.7", "3.11.7", True),
        (">3.11.7", "3.11.7", False),
        ("", "3.11.7", True),
        ("nonsense", "3.11.7", True),
    ],
)
def test_requires_python_is_compared_by_numbers(requires, version, holds):
    assert allows_python(requires, version) is holds


def test_an_engine_brings_its_packages_and_the_models_own_pin_wins():
    def names(engine, *own):
        return [requirement.text for requirement in with_engine(engine, parse_requirements(own, where="x"))]

    assert names("python", "rich") == ["rich"]
    assert [name.split("==")[0] for name in names("onnx")] == ["onnxruntime", "numpy"]
    assert names("onnx", "numpy==1.26.4")[0] == "numpy==1.26.4"
    assert not any(name.startswith("numpy==2") for name in names("onnx", "numpy==1.26.4"))
    assert names("tensorflow", "tensorflow==2.20.0") == ["tensorflow==2.20.0"]
    assert names("tensorflow", "Tensorflow_CPU==2.20.0") == ["Tensorflow_CPU==2.20.0"]


def test_every_need_of_an_engine_is_pinned():
    for needs in ENGINE_NEEDS.values():
        for need in needs:
            (requirement,) = parse_requirements([need.requirement], where="x")
            assert requirement.pinned
