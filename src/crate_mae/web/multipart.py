"""The file in a multipart body, as ``curl -F picture=@photo.jpg`` or a form sends it."""

import re

from crate_mae.web.limits import Refusal

BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s";]{1,70}))', re.IGNORECASE)
FILE = re.compile(rb"^content-disposition:.*;[ \t]?filename\*?=", re.IGNORECASE | re.MULTILINE)
HEAD = 4096
"""Bytes of a field's own header that are looked at."""
HOW = "send one picture as one file, and the parameters in the address"


def file_in(body: bytes, content_type: str) -> bytes:
    """The one file of a multipart body, or any other body as it is."""
    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        return body
    boundary = BOUNDARY.search(content_type)
    if boundary is None:
        raise Refusal(422, f"the form does not say what separates its fields; {HOW}.")
    separator = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1")
    _, *parts = (b"\r\n" + body).split(separator, 3)  # what stands before, a field, the end
    if len(parts) > 2:
        raise Refusal(422, f"the form has more than one field; {HOW}.")
    if len(parts) < 2 or not parts[1].startswith(b"--"):
        raise Refusal(422, "the form ends before it is complete; send it again.")
    head, _, content = parts[0].partition(b"\r\n\r\n")
    if not FILE.search(head[:HEAD]):
        raise Refusal(422, f"the form has a field that is not a file; {HOW}.")
    return content
