"""Errors of the settings: which one, where, what it must be, and what was probably meant."""

import pytest

from holdfast.server.config.settings import SettingsError, load, unknown_variables
from tests.requirements import requirement


def refused(tmp_path, text: str = "", environ: dict[str, str] | None = None, **flags: object) -> str:
    """What is said of settings that are wrong, with the file as FILE."""
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        load(flags, environ or {}, file)
    return str(error.value).replace(str(file), "FILE")


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"HOLDFAST_PORT": "http"}, "HOLDFAST_PORT must be a number without a unit, such as 8787."),
        ({"HOLDFAST_PORT": "70000"}, "HOLDFAST_PORT must be at most 65535."),
        ({"HOLDFAST_GRACE": "long"}, "HOLDFAST_GRACE must be a number without a unit, such as 1."),
        ({"HOLDFAST_OFFLINE": "maybe"}, "HOLDFAST_OFFLINE must be true or false."),
        ({"HOLDFAST_HEAD_TIMEOUT": "-1"}, "HOLDFAST_HEAD_TIMEOUT must be at least 0."),
        ({"HOLDFAST_LOG_LEVEL": "loud"}, "HOLDFAST_LOG_LEVEL must be debug, error, info or warning."),
        ({"HOLDFAST_DISCOVER": "often"}, "HOLDFAST_DISCOVER must be true, false or auto."),
    ],
)
def test_a_variable_with_a_wrong_value_is_named_with_what_it_must_be(tmp_path, variables, told):
    """ "In environment: Expected `int`, got `str` - at `$.port`" is for programmers."""
    assert told == refused(tmp_path, environ=variables)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "Unknown setting 'prot' in FILE. Did you mean 'port'?"),
        ("zebra = 1", "Unknown setting 'zebra' in FILE."),
        ('deadline = "1h"', "deadline in FILE must be a number without a unit, such as 3600."),
        ('[fallbacks]\n"up/a" = 5', "Each value of [fallbacks] in FILE must be a string."),
        ('[[agents]]\nname = "a"', "[[agents]] number 1 in FILE has no 'model', which it needs."),
        (
            '[[agents]]\nname = "a"\nmodel = "b/c"\n[[agents]]\nname = "d"\nmodell = "b/c"',
            "Unknown setting 'modell' in [[agents]] number 2 in FILE. Did you mean 'model'?",
        ),
        (
            '[[agents]]\nname = "a"\nmodel = "b/c"\nmax_steps = 0',
            "max_steps of [[agents]] number 1 in FILE must be at least 1.",
        ),
        ("agents = 3", "agents in FILE must be a list."),
        ('[prices]\n"a/b" = 3', "Each value of [prices] in FILE must be a table."),
    ],
)
def test_an_error_of_the_file_names_the_place_and_what_was_meant(tmp_path, text, told):
    """The file, the table by its number, the setting."""
    assert told == refused(tmp_path, text)


def test_a_file_that_was_named_by_a_relative_path_is_named_in_errors(tmp_path, monkeypatch):
    """Only a name with a slash was taken for a file: `--config holdfast.toml` left out where the problem is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text("zebra = 1")
    with pytest.raises(SettingsError) as error:
        load({}, {}, "holdfast.toml")

    assert f"Unknown setting 'zebra' in {tmp_path / 'holdfast.toml'}." == str(error.value)


@requirement("cli.misspelt")
@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("HOLDFAST_PROT", "Unknown variable HOLDFAST_PROT. Did you mean 'HOLDFAST_PORT'?"),
        ("HOLDFAST_APIKEY", "Unknown variable HOLDFAST_APIKEY. Did you mean 'HOLDFAST_API_KEY'?"),
        ("HOLDFAST_FOO", "Unknown variable HOLDFAST_FOO. It is not a setting: unset it."),
        ("HOLDFAST_PROVIDERS", "HOLDFAST_PROVIDERS cannot be set by a variable. Set 'providers' in the settings file."),
    ],
)
def test_a_misspelt_variable_is_an_error_as_a_misspelt_setting_is(tmp_path, variable, told):
    """It was ignored: a key that was meant to protect the server protected nothing."""
    assert told == refused(tmp_path, environ={variable: "1"})


@requirement("cli.misspelt")
def test_a_variable_that_the_settings_name_or_that_an_orchestrator_sets_is_no_error(tmp_path):
    """People name their own keys so, and Kubernetes sets variables by the name of a service."""
    file = tmp_path / "holdfast.toml"
    file.write_text('[[keys]]\nname = "ada"\nkey_env = "HOLDFAST_API_KEYS"\n')
    named = {"HOLDFAST_API_KEYS": "x" * 40, "HOLDFAST_CONFIG": ""}
    of_a_service = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_8787_TCP", "PORT_8787_TCP_ADDR")
    environ = named | {f"HOLDFAST_{name}": "1" for name in of_a_service}

    assert [] == unknown_variables(environ, load({}, environ, file))


def test_an_unknown_dialect_is_refused_with_those_that_there_are(tmp_path):
    """Packages can add more."""
    told = refused(tmp_path, '[[providers]]\nname = "a"\ndialect = "klingon"')

    assert told.startswith("Provider 'a' in FILE: unknown dialect 'klingon'. Use one of ")
    assert "openai" in told


def test_one_port_for_clients_and_for_metrics_is_refused(tmp_path):
    """Both can be bound; the server then ended with a bad file descriptor."""
    told = refused(tmp_path, "port = 9464\nmetrics_port = 9464")

    assert told.startswith("The settings `port` and `metrics_port` are both 9464.")


@requirement("safe.wrong-keys")
def test_a_cluster_key_that_can_be_guessed_is_refused(tmp_path):
    """Its holder reads and stops the runs of all owners, and whoever reads the database can try keys offline."""
    told = refused(tmp_path, environ={"HOLDFAST_CLUSTER_KEY": "hunter2"}, store="postgresql://shared")

    assert told.startswith("The setting `cluster_key` has fewer than 16 characters")
    assert "hunter2" not in told
