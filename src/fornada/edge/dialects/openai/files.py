"""`/v1/files`: what a batch is to do, and what it came to."""

from collections.abc import AsyncIterator
from typing import Any

from fornada.core.errors import BadRequest, DiskFull, TooLarge, UnknownFile
from fornada.core.files import File, FileId, FilesPort
from fornada.core.jobs import JobsPort
from fornada.core.keys import Role
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.dialects.openai.batch_output import OutputId, output_bytes, output_file, parse_output
from fornada.edge.dialects.openai.pages import PAGE, page_of
from fornada.edge.multipart import read_multipart
from fornada.edge.problems import Style

FILE_BYTES = 64 * 1024 * 1024
FORM_BYTES = 64 * 1024
"""What a form has around its file."""
PURPOSES = ("batch", "assistants", "evals", "fine-tune", "user_data", "vision")
LINES = "application/jsonl"
FILE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "file"},
        "bytes": {"type": "integer"},
        "created_at": {"type": "integer"},
        "filename": {"type": "string"},
        "purpose": {"type": "string"},
        "status": {"const": "processed"},
    },
    "required": ["id", "object", "bytes", "created_at", "filename", "purpose"],
}
_FORM = {
    "type": "object",
    "properties": {"file": {"type": "string", "format": "binary"}, "purpose": {"enum": list(PURPOSES)}},
    "required": ["file", "purpose"],
}
_FILES = {
    "type": "object",
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": FILE}},
    "required": ["object", "data"],
}
_DELETED = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "object": {"const": "file"}, "deleted": {"const": True}},
    "required": ["id", "object", "deleted"],
}


def file_routes(base: str, suffix: str, *, files: FilesPort, jobs: JobsPort) -> list[Route]:
    """Below `base`. `suffix` tells the operations of two bases apart."""
    shelf = _Shelf(files, jobs)
    put = Operation(
        f"createFile{suffix}",
        "Hand a file in",
        FILE,
        shelf.put,
        Role.USER,
        takes={"multipart/form-data": _FORM},
        errors=(BadRequest, TooLarge, DiskFull),
        body_limit=FILE_BYTES + FORM_BYTES,
    )
    all = Operation(
        f"listFiles{suffix}",
        "Files, the newest first",
        _FILES,
        shelf.all,
        Role.USER,
        (*PAGE, Parameter("purpose", "Of this purpose alone")),
    )
    content = Operation(
        f"readFile{suffix}",
        "The bytes of a file, or the lines of a batch's output",
        {"type": "string"},
        shelf.content,
        Role.USER,
        answer_type="application/octet-stream",
        more_answers={LINES: {"type": "string"}},
        errors=(UnknownFile,),
    )
    return [
        Route(f"{base}/files", Style.SUPERSET, {"POST": put, "GET": all}),
        Route(f"{base}/files/{{id}}/content", Style.SUPERSET, {"GET": content}),
        Route(
            f"{base}/files/{{id}}",
            Style.SUPERSET,
            {
                "GET": Operation(f"getFile{suffix}", "One file", FILE, shelf.one, Role.USER, errors=(UnknownFile,)),
                "DELETE": Operation(
                    f"deleteFile{suffix}", "Forget a file", _DELETED, shelf.remove, Role.USER, errors=(UnknownFile, BadRequest)
                ),
            },
        ),
    ]


class _Shelf:
    """Handlers. A batch's output is a file by its id alone: it is put together from the answers when it is read."""

    def __init__(self, files: FilesPort, jobs: JobsPort) -> None:
        self._files = files
        self._jobs = jobs

    async def put(self, call: Call) -> Reply:
        if call.facts.media_type != "multipart/form-data":
            raise BadRequest("send the file as multipart/form-data, with the fields 'file' and 'purpose'")
        fields = read_multipart(call.body, call.facts.content_type, lists=("expires_after[anchor]",))
        file, purpose = fields.get("file"), fields.get("purpose")
        if file is None or not file.is_file:
            raise BadRequest("'file' is missing, or no file")
        named = purpose.text() if purpose is not None else None
        if named not in PURPOSES:
            raise BadRequest(f"'purpose' must be one of {', '.join(PURPOSES)}")
        if len(file.data) > FILE_BYTES:
            raise TooLarge(f"the file is larger than {FILE_BYTES} bytes")
        stored = await self._files.put(account_of(call.account), name=file.filename[:255] or "file", purpose=named, data=file.data)
        return json_reply(shown(stored))

    async def all(self, call: Call) -> Reply:
        purpose = call.query.get("purpose")
        found = [file for file in self._files.all(account_of(call.account)) if purpose in (None, "", file.purpose)]
        return json_reply(await page_of(found, call, shown))

    async def one(self, call: Call) -> Reply:
        output = parse_output(call.parameters["id"])
        if output is not None:
            return json_reply(await output_file(self._jobs, output, call.account))
        return json_reply(shown(self._found(call)))

    async def content(self, call: Call) -> Reply:
        output = parse_output(call.parameters["id"])
        if output is not None:
            return Reply(stream=self._output(output, call), type=LINES)
        return Reply(stream=self._files.content(self._found(call)), type="application/octet-stream")

    async def remove(self, call: Call) -> Reply:
        if parse_output(call.parameters["id"]) is not None:
            raise BadRequest("the output of a batch goes with the batch: it is kept as long as [jobs] keep_s says")
        file = self._found(call)
        self._files.remove(file.id, file.account)
        return json_reply({"id": file.id, "object": "file", "deleted": True})

    def _output(self, output: OutputId, call: Call) -> AsyncIterator[bytes]:
        return output_bytes(self._jobs, output, call.account)

    def _found(self, call: Call) -> File:
        return self._files.get(FileId(call.parameters["id"]), account_of(call.account))


def shown(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.created),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }
