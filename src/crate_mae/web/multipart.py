"""The file in a multipart body, as ``curl -F picture=@photo.jpg`` or a form sends it."""

from email.message import Message
from email.parser import BytesHeaderParser

from crate_mae.web.limits import Refusal

HEAD = 4096
"""Bytes of a field's own header that are looked at."""
HOW = "send one picture as one file, and the parameters in the address"


def file_in(body: bytes, content_type: str) -> bytes:
    """The one file of a multipart body, or any other body as it is."""
    header = Message()
    header["Content-Type"] = content_type
    if header.get_content_type() != "multipart/form-data":
        return body
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not boundary.isascii():
        raise Refusal(422, f"the form does not say what separates its fields; {HOW}.")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), 3)  # what stands before, a field, the end
    if len(parts) > 2:
        raise Refusal(422, f"the form has more than one field; {HOW}.")
    if len(parts) < 2 or not parts[1].startswith(b"--"):
        raise Refusal(422, "the form ends before it is complete; send it again.")
    head, _, content = parts[0].partition(b"\r\n\r\n")
    if BytesHeaderParser().parsebytes(head[:HEAD].lstrip()).get_filename() is None:
        raise Refusal(422, f"the form has a field that is not a file; {HOW}.")
    return content
