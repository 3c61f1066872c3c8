"""What counts as secret, what does not, and what a look costs."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import pytest

from poimen.declare.storing.canonical import from_bytes, to_bytes
from poimen.secrecy.rules import REDACTED, Found, Rules
from poimen.testing import made_up_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

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
    "docker://alpine:3.18@sha256:" + "a" * 64,
    "http://localhost:3000,me@x.org",
    "see http://host:8080;mail:me@x.org",
    "| http://host:8080|ann@example.org |",
    'if s.startswith("-----BEGIN PRIVATE KEY-----"): return load(s)  # docs.example.com/reference/privatekeys/index',
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\nverify_with_sha256 abcdefghijabcdefghijabcd",
    'PEM = "-----BEGIN RSA PRIVATE KEY-----"\n\ndef is_private(text: str) -> bool:\n    return PEM in text  # a/'
    + "b" * 30,
    "sk-SK1234567890123 is a place, sk-SK3112000000198742637541 an account, sk-1234567890ABCDEF an article",
    "/sk-2024010112345678/foo and /sk-20240101/sk-SK-2024-01-01T00:00:00",
    "sk-learn-extra-2024-version sk-fading-circle sk-cube-grid-9 sk-chasing-dot-1 sk-folding-cube1",
    "xoxo-hugs-and-kisses-2024 xapp-design-2024-long xoxo-2024",
)

KEYS: Final = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n"
    + "Qk1+/" * 12,
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\nComment: of ann\n\n" + "Qk1+/" * 12,
    "-----BEGIN PRIVATE KEY-----\r\n" + "Qk1+/" * 12,
    "-----BEGIN PRIVATE KEY-----\\n" + "Qk1+/" * 12,
    "-----BEGIN PRIVATE KEY-----\\\\r\\\\n" + "Qk1+/" * 12,
    "-----BEGIN EC PRIVATE KEY-----\n    " + "Qk1+/" * 12,
    "sk-" + "a1B2" * 12,
    "sk-svcacct-abcDEF123456-_xyz789",
    "sk-or-v1-" + "0a1b" * 16,
    "sk-lf-0a1b2c3d-0a1b-4a1b-8a1b-0a1b2c3d4e5f",
    "sk-" + "0a1b2c3d" * 4,
    *("xoxb-123456789012-abcdefABCDEF", "xoxp-1-a1b2c3d4e5f6", "xapp-1-A0B1C2D3E-123456-0a1b2c", "xoxo-12-34-56789012"),
)


@pytest.mark.parametrize("text", KEYS)
def test_the_forms_of_the_issuers_are_found(text: str) -> None:
    assert find({"a": text}) is not None
    assert text[-10:] not in RULES.redacted(f"it says {text} here")


def test_every_one_of_five_hundred_is_found() -> None:
    assert [one.text for one in made_up_secrets(500, seed=7) if find({"a": [one.value]}) is None] == []


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


ODD: Final = "p\"w\\d-ümlaut\nline 2/long's"
ESCAPES: Final[dict[str, Callable[[str], str]]] = {
    "plain": str,
    "repr": lambda v: repr(v)[1:-1],
    "repr in a dict": lambda v: repr({"a": v}),
    "json": json.dumps,
    "json as it is": lambda v: json.dumps(v, ensure_ascii=False),
    "quote": lambda v: quote(v, safe=""),
    "quote of a path": quote,
    "a form": lambda v: urlencode({"a": v}),
}


@pytest.mark.parametrize("how", ESCAPES)
@pytest.mark.parametrize("secret", [ODD, ODD.replace("'", ""), "correct horse", "plain-enough"])
def test_what_was_revealed_is_known_when_it_was_escaped_once(how: str, secret: str) -> None:
    rules = Rules()
    rules.learn(secret)
    text = ESCAPES[how](secret)
    assert rules.redacted(f"it said {text}, no more").replace("\\'", "'") in {
        f"it said {around[0]}{REDACTED}{around[1]}, no more"
        for around in (("", ""), ('"', '"'), ("{'a': '", "'}"), ("{'a': \"", '"}'), ("a=", ""))
    }
    assert find({"a": [f"it said {text}"]}, rules) is not None
    assert rules.in_bytes(text.encode())


def test_a_secret_without_escapes_is_sought_once() -> None:
    rules = Rules()
    for _ in range(3):
        rules.learn("plain-enough")
    assert len(rules._revealed) == 1
    rules.learn(ODD)
    assert len(rules._revealed) <= 1 + 7


LONG: Final = 60_000


@pytest.mark.parametrize(
    "unit",
    [
        *("eyJ-", "eyJaaaaaaaa.", "sk-a-", "sk-", "//:", "://a:", "-----BEGIN PRIVATE KEY-----", "bearer ", "basic A"),
        *(
            "-----BEGIN PRIVATE KEY-----A: b\\n",
            "-----BEGIN PRIVATE KEY-----\nAb: c\n",
            "sk-a-b-",
            "sk-proj-",
            "xoxb-1-",
        ),
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
