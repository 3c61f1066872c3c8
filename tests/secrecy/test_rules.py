"""What counts as secret, what does not, and what a look costs."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from hashlib import sha256
from typing import Any, Final

import pytest

from poimen.declare.storing.canonical import from_bytes, to_bytes
from poimen.secrecy.rules import REDACTED, Found, Rules
from poimen.testing import made_up_secrets

RULES: Final = Rules()


def find(value: Any, rules: Rules = RULES) -> Found | None:
    return rules.find(to_bytes(value), from_bytes)


@pytest.mark.parametrize("canary", made_up_secrets(60, seed=1), ids=lambda one: one.kind)
def test_each_form_is_found_and_redacted(canary: Any) -> None:
    for value in (canary.value, [canary.value], {"a": {"b": [1, canary.value]}}):
        found = find(value)
        assert found is not None
        assert canary.hidden not in found.path + found.what
    for around in ("{}", "x\n{}\ny", "see {}.", "'{}'", '{{"text": "{}"}}', "run-{}", "a\\n{}"):
        assert canary.hidden not in RULES.redacted(around.format(canary.text))
    assert canary.hidden not in RULES.redacted(repr(f"\n{canary.text}\n"))
    assert canary.hidden not in RULES.redacted(json.dumps(json.dumps({"v": canary.value})))


FINE: Final = (
    {"next_token": "CAESBwoFCgNmb28", "max_tokens": 4096, "token_count": 17, "token": "abc", "tokens": ["a", "b"]},
    {"password": "", "secret": None, "api_key": True, "authorization": 0, "client_secret": "***", "pwd": "/srv/ann"},
    {
        "password_hint": "your first cat",
        "forgot_password": "https://shop/reset",
        "secrets": ["none"],
        "secretary": "Bo",
    },
    {"type": "object", "properties": {"password": {"type": "string"}, "api_key": {"type": "string"}}},
    {"required": ["password", "email"], "note": "password", "fields": ["secret", "authorization"]},
    "The password was wrong, so I asked for a new one: passwords expire, secrets too. Authorization failed.",
    "Bearer authentication is basic; Basic understanding of bearer tokens; a basic introduction: desk-based, risk-free",
    "see https://example.org:8080/a@b and mailto:ann@example.org, git@github.com:a/b.git, http://ann@host/x",
    "postgresql://ann:***@host/db and postgresql://ann:${PASSWORD}@host/db and postgresql://<user>:<password>@host/",
    "set STRIPE_KEY to your sk_live_... key; keys begin with sk-, ghp_, AKIA or xoxb-; `-----BEGIN PRIVATE KEY-----`",
    "sk-toggleable__label-arrow sk-estimator-doc-link sk-container-id-1 desk-1234567890123456 flask-sqlalchemy",
    sha256(b"x").hexdigest(),
    "018f3a5e-7b1c-7cc2-98c4-dc0c0c07398f",
    "data:image/png;base64," + b64encode(bytes(range(256)) * 40).decode(),
    [sha256(bytes([n])).hexdigest() for n in range(200)],
    b64encode(b"".join(sha256(bytes([n])).digest() for n in range(250))).decode(),
    'password = os.environ["DB_PASSWORD"]\napi_key = settings.api_key  # read from the secret store',
    {"code": "def f(password: str, token: str) -> None: ...", "diff": "-    secret = None\n+    secret = load()"},
    {"$secret": "env:STRIPE_KEY"},
    {"password": {"$secret": "env:DB_PASSWORD"}},
)


@pytest.mark.parametrize("value", FINE, ids=lambda value: str(value)[:40])
def test_what_is_no_secret_passes(value: Any) -> None:
    assert find(value) is None


PROSE: Final = (
    "wrong password: try again",
    "the authorization: denied.",
    "a secret of 12 characters",
    "max_tokens=5, next_token: CAESBw",
    "password: None",
    "client_secret=***",
    "No module named 'secret'",
)


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_left_alone(text: str) -> None:
    assert RULES.redacted(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password=hunter2", f"password={REDACTED}"),
        ("DB_PASSWORD = hunter2;", f"DB_PASSWORD = {REDACTED};"),
        ("password: correcthorsebatterystaple", f"password: {REDACTED}"),
        ("Login(password='it\\'s', user='ann')", f"Login(password='{REDACTED}', user='ann')"),
        ('{"apiKey": "abc", "n": 1}', f'{{"apiKey": "{REDACTED}", "n": 1}}'),
        ("GET /?api_key=abc&page=2", f"GET /?api_key={REDACTED}&page=2"),
        ("Authorization: Token abc", f"Authorization: {REDACTED}"),
        ("Set-Cookie: sid=31d4; Path=/", f"Set-Cookie: {REDACTED}; Path=/"),
        ("postgresql://ann:hunter2@host/db", f"postgresql://ann:{REDACTED}@host/db"),
        ("Authorization: Basic YW5uOmh1bnRlcjI=", f"Authorization: Basic {REDACTED}"),
    ],
)
def test_a_text_keeps_all_but_the_secret(text: str, left: str) -> None:
    assert RULES.redacted(text) == left
    assert RULES.redacted(left) == left


@pytest.mark.parametrize("name", ["password", "PassWord", "API-Key", "api_key", "apiKey", "x-api-key", "Set-Cookie"])
def test_a_name_counts_in_any_spelling(name: str) -> None:
    assert find({"a": [{name: "abc"}]}) == Found(f".a[0].{name}", f"a text under the name {name!r}")
    assert find({name: ["abc"]}) is not None
    assert find({name: {"$type": "bytes", "value": "YWJj"}}) is not None
    assert find({"$type": "pairs", "value": [[1, "x"], [name, "abc"]]}) is not None


def test_a_secret_key_is_not_shown_in_the_path() -> None:
    secret = "ghp_" + "a1" * 18
    found = find({"a": {secret: 1}})
    assert found == Found(".a.<a key>", "a GitHub token")


def test_more_names_and_patterns_and_what_is_allowed() -> None:
    rules = Rules(names=["pin code"], patterns=[r"acme_[0-9a-f]{8}"], allow=["secret", "url", "api-key"])
    assert find({"pin_code": "1234"}, rules) and find({"PinCode": "1234"}, rules)
    assert find(["so acme_00ff00ff it is"], rules)
    assert rules.redacted("pin code=1234 acme_00ff00ff") == f"pin code={REDACTED} {REDACTED}"
    for value in ({"secret": "x"}, {"apiKey": "x"}, "https://ann:pw@host/"):
        assert find(value, rules) is None and find(value) is not None
    off = Rules(active=False)
    assert find({"password": "x"}, off) is None and off.redacted("password=x") == "password=x"


def test_what_was_revealed_is_known_from_then_on() -> None:
    rules = Rules()
    assert find("it is correct horse", rules) is None
    rules.learn('correct "horse"')
    assert find(['it is correct "horse"'], rules) == Found("[0]", "a secret that was revealed here")
    assert rules.redacted('no: correct "horse"!') == f"no: {REDACTED}!"
    rules.learn("abc")
    assert find("abc", rules) is None, "a short one would be found everywhere"


LONG: Final = 60_000


@pytest.mark.parametrize(
    "unit",
    [
        *("eyJ-", "eyJaaaaaaaa.", "sk-a-", "sk-", "//:", "://a:", "-----BEGIN PRIVATE KEY-----", "bearer ", "basic A"),
        *("AKIA", "password=", 'password: "a\\', "password: ", "api_key", "'", "\\", "xoxb-", "<", "${", "SG.-"),
        "a" * 50 + "@",
    ],
)
def test_no_text_makes_a_look_slow(unit: str) -> None:
    text = unit * (LONG // len(unit))
    begun = time.process_time()
    find(text)
    RULES.redacted(text)
    RULES.redacted(text + "Z")
    assert time.process_time() - begun < 5, "a look whose time grows with the square would take minutes"


def test_a_huge_text_is_looked_at_only_where_it_is_kept() -> None:
    secret = "ghp_" + "a1" * 18
    begun = time.process_time()
    kept = RULES.redacted("x " * 50_000_000 + secret, most=4096)
    assert time.process_time() - begun < 5
    assert len(kept) == 4096
    for at in range(4060, 4100):
        assert "a1a1" not in RULES.redacted("x" * (at - 1) + " " + secret + " y" * 99_999, most=4096)


def test_a_small_value_costs_one_look(capsys: pytest.CaptureFixture[str]) -> None:
    body = b'{"cents":4200,"order":"order-88","note":"for the customer in Leeds"}'
    rules, best, n = RULES, 1.0, 20_000
    bare = 1.0
    for _ in range(7):
        begun = time.process_time()
        for _ in range(n):
            rules.find(body, from_bytes)
        best = min(best, (time.process_time() - begun) / n)
        begun = time.process_time()
        for _ in range(n):
            json.loads(body)
        bare = min(bare, (time.process_time() - begun) / n)
    with capsys.disabled():
        print(
            f"\nsecrets: a look at {len(body)} bytes costs {best * 1e6:.1f} us (json.loads of them: {bare * 1e6:.1f})"
        )
    assert best < 2 * bare + 5e-6
