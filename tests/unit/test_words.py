"""The page's words: all of them in each language, and none of them anywhere else."""

import re
from pathlib import Path

import pytest

from tests.requirements import requirement

SOURCE = Path(__file__).parents[2] / "web" / "src"
WORDS = SOURCE / "words"
LANGUAGES = sorted(path.stem for path in WORDS.glob("??.ts"))

COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
IMPORT = re.compile(r"^import\b[^;]*;", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"""(?:aria-label|aria-valuetext|placeholder|title|alt|label)=(?:"([^"]+)"|\{`([^`]*)`\})""")
THROWN = re.compile(r"""throw new Error\("[a-z][^"]*"\)""")
"""An error message for developers of the page, not for its users."""
CLASS = re.compile(r'class=(?:"[^"]*"|\{`[^`]*`\})')
BETWEEN_TAGS = re.compile(r"(?<![=-])>([^<>{}=;()&]*[^\W\d_]{2,}[^<>{}=;()&]*)<")
QUOTED = re.compile(r"""(["`])((?:(?!\1)[^\\\n]|\\.)*)\1""")
SENTENCE = re.compile(r"^[A-Z][a-z]+(?:$|[ ,.:…’']\S*)|[a-z]{2,}[,.]? [a-z]{2,} [a-z]{2,}")
"""A capitalised word, or three words in a row: text for people, not code."""
NAMES = {
    "Holdfast",
    "Anthropic",
    "Groq",
    "Ollama",
    *("Enter", "Escape", "Shift", "Mod", "Esc", "Ctrl"),
    *(
        "ArrowDown",
        "ArrowUp",
        "AbortError",
        "LM Studio",
        "Azure OpenAI",
        "Google Gemini",
        "AWS Bedrock",
        "Ollama /api",
        "Bearer ${key.value}",
        "Bearer ${this.#key}",
    ),
    *("Bearer ${text.trim()}", "the server answered ${response.status}", "noopener noreferrer nofollow"),
    *("Android", "Windows", "Linux", "Tab"),
    *("holdfast key new NAME", "holdfast user new NAME"),
    *("Files", "did not run.", "${link.href} could not be loaded"),
}
"""Names that are the same in every language, and texts that only programs read."""


def keys(language: str) -> list[str]:
    files = (WORDS / f"{language}.ts", WORDS / "people" / f"{language}.ts")
    bodies = [COMMENT.sub("", file.read_text(encoding="utf-8")).split("= {\n", 1)[1] for file in files]
    return re.findall(r"^(?: {2}| {4})(\w+):", "\n".join(bodies), re.MULTILINE)


@requirement("ui.words")
def test_each_language_has_every_word_in_the_same_order():
    """The compiler checks that no key is missing; the same order makes two languages easy to compare."""
    assert ["ar", "de", "en"] == LANGUAGES
    assert len(keys("en")) > 300
    assert keys("en") == keys("de")
    assert set(keys("en")) <= set(keys("ar"))


@requirement("ui.words")
@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "en"])
def test_nothing_is_left_in_english(language):
    """A sentence of the English page in another language was forgotten."""
    sentence = re.compile(r'"([^"\n]*[a-z] [^"\n]*)"')
    english, other = (
        {said for file in WORDS.rglob(f"{each}.ts") for said in sentence.findall(file.read_text(encoding="utf-8"))}
        for each in ("en", language)
    )

    assert {"Top P", "one, another"} >= english & other


def visible(path: Path) -> list[str]:
    """Return the texts for people in a source file."""
    text = path.read_text(encoding="utf-8")
    for ignored in (COMMENT, IMPORT, CLASS, THROWN):
        text = ignored.sub("", text)
    found = [one or other for one, other in SHOWN.findall(text)]
    found += [literal for _, literal in QUOTED.findall(text) if SENTENCE.search(literal)]
    if path.suffix == ".tsx":
        found += [between.strip() for between in BETWEEN_TAGS.findall(text)]
    return [
        said for said in found if said not in NAMES and re.search(r"[^\W\d_]{2,}", re.sub(r"\$\{[^}]*\}", "", said))
    ]


@requirement("ui.words")
def test_no_word_of_the_page_stands_outside_of_its_dictionary():
    """A text in a view cannot be translated."""
    files = [path for path in sorted(SOURCE.rglob("*.ts*")) if WORDS not in path.parents]

    assert len(files) > 80
    assert {} == {str(path.relative_to(SOURCE)): said for path in files if (said := visible(path))}


@requirement("ui.words")
def test_the_search_for_words_finds_them(tmp_path):
    """A search that never finds anything would always pass."""
    view = tmp_path / "view.tsx"
    view.write_text(
        '<button title="Send it">Send</button>; const told = "It could not be sent."; const name = "is-open wide";'
    )

    assert ["Send it", "Send it", "It could not be sent.", "Send"] == visible(view)
