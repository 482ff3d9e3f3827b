"""The `format` keyword: strings of a known form, as patterns.

Each is a part of what the format allows, so that every reader accepts it. A format that is not here is an
annotation, as the standard has it: numbers' (`int32`, `float`), `password`, `binary` and unknown ones.
"""

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_DATE = (
    "[0-9]{3}[1-9]-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_ZONE = "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = f"{_LABEL}([.]{_LABEL}){{0,3}}"
_DOMAIN = f"({_LABEL}[.]){{1,3}}[a-z]{{2,10}}"
_URL = f"https?://{_DOMAIN}(:[1-9][0-9]{{1,3}})?(/[A-Za-z0-9._~-]{{0,40}}){{0,8}}([?][a-z]+=[A-Za-z0-9]+)?"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"

PATTERNS: dict[str, str] = {
    "date": f"^{_DATE}$",
    "time": f"^{_CLOCK}{_ZONE}$",
    "date-time": f"^{_DATE}T{_CLOCK}{_ZONE}$",
    "duration": "^P([1-9][0-9]{0,3}D(T[1-9][0-9]{0,2}H)?|[1-9][0-9]{0,3}W|T[1-9][0-9]{0,3}[HMS])$",
    "email": f"^[A-Za-z0-9]([A-Za-z0-9_+-]{{0,30}}[A-Za-z0-9])?([.][A-Za-z0-9]{{1,20}})?@{_DOMAIN}$",
    "idn-email": f"^[A-Za-z0-9]{{1,30}}([.][A-Za-z0-9]{{1,20}})?@{_DOMAIN}$",
    "hostname": f"^{_HOST}$",
    "idn-hostname": f"^{_HOST}$",
    "ipv4": f"^{_OCTET}([.]{_OCTET}){{3}}$",
    "ipv6": "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$",
    "uri": f"^{_URL}$",
    "url": f"^{_URL}$",
    "iri": f"^{_URL}$",
    "uri-reference": f"^({_URL}|/[A-Za-z0-9._~-]{{1,40}}(/[A-Za-z0-9._~-]{{0,40}}){{0,8}})$",
    "uuid": f"^{_UUID}$",
    "json-pointer": "^(/[A-Za-z0-9_-]{1,40}){0,8}$",
    "byte": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    "regex": "^[A-Za-z0-9 ]{1,40}$",
}
_SHORT_URL = "https?://[a-z0-9]{1,20}[.][a-z]{2,4}(/[a-z0-9._-]{1,10}){0,2}"
_SHORT_EMAIL = "^[a-z0-9]{1,8}@[a-z0-9]{1,8}[.][a-z]{2,3}$"
SHORTER: dict[str, str] = {
    "email": _SHORT_EMAIL,
    "idn-email": _SHORT_EMAIL,
    "hostname": "^[a-z0-9]{1,12}[.][a-z]{2,3}$",
    "idn-hostname": "^[a-z0-9]{1,12}[.][a-z]{2,3}$",
    "uri": f"^{_SHORT_URL}$",
    "url": f"^{_SHORT_URL}$",
    "iri": f"^{_SHORT_URL}$",
    "uri-reference": "^/[a-z0-9._-]{1,20}$",
}
"""For schemas that also bound the length below what the pattern above may come to."""
