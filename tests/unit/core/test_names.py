"""References, sizes and names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import BadRequest, InvalidSpec
from fornada.core.names import Reference, check_deployable, parse_reference
from fornada.core.resources import format_size, parse_size
from fornada.core.specs import read_spec

DIGEST = "0123456789ab"


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("@cf/org/name", Reference("@cf/org/name")),  # type: ignore[arg-type]
        ("org/name.v1.2/", Reference("org/name.v1.2")),  # type: ignore[arg-type]
        ("padaria/pão", Reference("padaria/pão")),  # type: ignore[arg-type]
        ("a:canary", Reference("a", label="canary")),  # type: ignore[arg-type]
        (f"a/b:{DIGEST}", Reference("a/b", version=DIGEST)),  # type: ignore[arg-type]
    ],
)
def test_a_reference_is_read_as_written(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("text", ["", "/", "..", "a/../b", "a//b", "a/./b", "a\0b", "a\nb", "x" * 300, "a:0123", "a:blue", ":canary"])
def test_a_name_that_could_lead_elsewhere_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_reference(text)


@given(st.text(max_size=40))
def test_a_deployable_name_reads_back_as_itself(name: str) -> None:
    try:
        accepted = check_deployable(name)
    except InvalidSpec:
        return
    assert parse_reference(accepted).name == accepted


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("Bad Name!", "can't hold '!'"),
        ("@test/a:b", "colon"),
        ("@test/what?", r"can't hold '\?'"),
        ("a&b", "can't hold '&'"),
        ("a'b", "can't hold ''"),
        ('a"b', "can't hold '\""),
        ("<script>", "can't hold '<'"),
        ("a%2fb", "can't hold '%'"),
        ("a\\b", "can't hold"),
        ("$(date)", r"can't hold '\$'"),
        ("a@b", "can't hold '@'"),
        ("@@a", "can't hold '@'"),
        ("@", "can't hold the part ''"),
        ("-v", "can't hold the part '-v'"),
        ("@test/-v", "can't hold the part '-v'"),
        ("@test/.hidden", "can't hold the part '.hidden'"),
        (" a", "can't hold the part ' a'"),
        ("a ", "can't hold the part 'a '"),
        ("a  b", "can't hold the part 'a  b'"),
        ("a\u00a0b", r"invisible character U\+00A0"),
        ("a\u200bb", r"invisible character U\+200B"),
        ("a\u202eb", r"invisible character U\+202E"),
        ("a\u2019b", "can't hold '\u2019'"),
        ("@test/logs", "verb of the API"),
    ],
)
def test_a_strange_name_can_t_be_deployed_and_the_line_says_what_is_wrong(name: str, about: str) -> None:
    with pytest.raises(InvalidSpec, match=about) as refusal:
        check_deployable(name)
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize(
    "name", ["a", "@cf/org/name", "padaria/pão", "模型/一", "emoji/🍞", "with space/in it", "v1.5-x_y+z~1", "UPPER/Case", "1/2", "_x"]
)
def test_a_usual_name_of_any_script_can_be_deployed(name: str) -> None:
    assert check_deployable(name) == name


@pytest.mark.parametrize("name", ["Bad Name!", "@x/what?"])
def test_every_door_of_a_deploy_asks_for_a_proper_name(name: str) -> None:
    for toml in (f'name = "{name}"', f'name = "x"\naliases = ["{name}"]'):
        with pytest.raises(InvalidSpec, match="a model's name can't hold"):
            read_spec(toml)
    with pytest.raises(InvalidSpec, match="a model's name can't hold"):
        read_spec("", default_name=name)


@pytest.mark.parametrize(
    ("text", "count"), [("512MiB", 512 * 2**20), ("2 GB", 2 * 10**9), ("1g", 2**30), ("1.5KiB", 1536), (7, 7), ("0", 0)]
)
def test_sizes(text: str | int, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "MiB", "-1", -1, "1 furlong", True, "1e3", "nan"])
def test_what_is_no_size_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match=r"size|negative"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**50))
def test_a_formatted_size_is_close_to_the_size(count: int) -> None:
    assert abs(parse_size(format_size(count)) - count) <= max(1, count * 0.06)
