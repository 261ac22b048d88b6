"""Help for errors of people and their keys: accounts, sign-ins, roles and scopes."""

from __future__ import annotations

from .entry import ErrorHelp

ACCOUNT_ERRORS = (
    ErrorHelp(
        "wrong_password",
        "401",
        "the name or the password is wrong; which of them is not said",
        "A typing error, or the account has another name.",
        "Try again, or ask an admin for a link to set a new password.",
    ),
    ErrorHelp(
        "too_many_tries",
        "429",
        "there were too many wrong passwords for the name or from the address",
        "Somebody, perhaps a program, tries passwords.",
        "Wait for `Retry-After`, or ask an admin for a link to set a new password.",
    ),
    ErrorHelp(
        "too_many_sign_ins",
        "503",
        "more people sign in at once than the server can check",
        "Checking a password takes time and memory on purpose.",
        "Try again in a few seconds.",
    ),
    ErrorHelp(
        "signed_out",
        "401",
        "the sign-in of this browser has ended",
        "It expired, was ended in another browser or by an admin, or the password was changed.",
        "Sign in again. Nothing that was running has stopped because of it.",
    ),
    ErrorHelp(
        "link_not_valid",
        "403",
        "a code or link was used, is too old, or is wrong",
        "Codes and links work once, and for a limited time.",
        "Ask for a new one.",
    ),
    ErrorHelp(
        "weak_password",
        "400",
        "the password is too short, or too common",
        "It is on the list of common passwords, contains the name, or has too few characters.",
        "Choose a longer one: several words are good.",
    ),
    ErrorHelp(
        "bad_name",
        "400",
        "a name has characters or a length that are not allowed",
        "The message has the rule.",
        "Choose another name.",
    ),
    ErrorHelp(
        "bad_email",
        "400",
        "the text is not an e-mail address",
        "A typing error.",
        "Correct it, or leave it out.",
    ),
    ErrorHelp(
        "name_taken",
        "409",
        "another account has the name or the e-mail address",
        "Names and addresses belong to one account each.",
        "Choose another.",
    ),
    ErrorHelp(
        "accounts_exist",
        "409",
        "the server has accounts already, so no one can make the first one",
        "The first account was made before.",
        "Ask an admin to add you.",
    ),
    ErrorHelp(
        "last_admin",
        "409",
        "the change would leave the server without an admin",
        "This account is the only one with the role admin.",
        "Make another person an admin first.",
    ),
    ErrorHelp(
        "too_many_groups",
        "400",
        "there are as many groups as there can be",
        "The message has the limit.",
        "Delete a group first.",
    ),
    ErrorHelp(
        "not_allowed",
        "403",
        "the caller is known, and may not make this call",
        "The role of the person or the scope of the key does not include it.",
        "Ask an admin for the right, or use another key.",
    ),
    ErrorHelp(
        "sign_in_needed",
        "403",
        "the call is for a person who is signed in, and came with a key",
        "Passwords, keys and sign-ins of a person cannot be changed by a program.",
        "Sign in on the page, and do it there.",
    ),
    ErrorHelp(
        "guests_only_read",
        "403",
        "a guest tried to do more than to read",
        "The role guest sees only what is shared.",
        "Ask an admin to make you a member.",
    ),
    ErrorHelp(
        "scope_missing",
        "403",
        "the key lacks a scope that the call needs; the message names it",
        "The key was made for other things.",
        "Make a key that has the scope.",
    ),
    ErrorHelp(
        "scope_not_allowed",
        "400",
        "only the key of an admin can have the scope `admin`",
        "A key has no more rights than the person who makes it.",
        "Leave the scope out, or ask an admin.",
    ),
)
