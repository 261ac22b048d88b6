"""Codes of an authenticator app."""

import pytest

from holdfast.server.features.accounts.factors.totp import STEP, step_of, totp_code, totp_link
from tests.requirements import requirement

SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
"""`12345678901234567890` in base32, the secret of the RFC's examples."""


@requirement("people.second-factor")
@pytest.mark.parametrize(
    ("at", "code"),
    [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (20000000000, "353130")],
)
def test_codes_are_those_of_rfc_6238(at: int, code: str):
    """The last six digits of the examples in its appendix B."""
    assert code == totp_code(SECRET, int(at // STEP))


@requirement("people.second-factor")
def test_a_code_is_valid_for_one_step_before_and_after_and_only_once():
    """Clocks differ a little. What was used, and what came before it, is worth nothing."""
    now, step = 1_000_000.0, int(1_000_000 // STEP)
    found = [step_of(SECRET, totp_code(SECRET, step + late), now, 0) for late in (-2, -1, 0, 1, 2)]

    assert [None, step - 1, step, step + 1, None] == found
    assert step_of(SECRET, totp_code(SECRET, step), now, step) is None
    assert step_of(SECRET, totp_code(SECRET, step - 1), now, step) is None
    assert step + 1 == step_of(SECRET, totp_code(SECRET, step + 1), now, step)


@requirement("people.second-factor")
def test_the_link_for_apps_survives_odd_names():
    """A name is a label in the app, and must not become a part of the query."""
    assert f"otpauth://totp/Holdfast%3Aa%3Fb?secret={SECRET}&issuer=Holdfast" == totp_link(SECRET, "a?b")
