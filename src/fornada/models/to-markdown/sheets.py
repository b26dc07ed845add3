"""Spreadsheets: each sheet a heading and a table."""

import csv as csv_module
import datetime
import io
import zipfile

from defusedxml import ElementTree

import fornada_sdk

MOST_CELLS = 500_000
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def xlsx(raw, *, plain, **_):
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
    return shown(((sheet.title, sheet.iter_rows(values_only=True)) for sheet in book.worksheets), plain)


def xls(raw, *, plain, **_):
    import xlrd

    book = xlrd.open_workbook(file_contents=raw, logfile=io.StringIO())

    def value(cell):
        if cell.ctype == xlrd.XL_CELL_DATE:
            return xlrd.xldate_as_datetime(cell.value, book.datemode)
        if cell.ctype == xlrd.XL_CELL_BOOLEAN:
            return bool(cell.value)
        return "" if cell.ctype == xlrd.XL_CELL_ERROR else cell.value

    sheets = ((sheet.name, ([value(cell) for cell in row] for row in sheet.get_rows())) for sheet in book.sheets())
    return shown(sheets, plain)


def xlsb(raw, *, plain, scratch, **_):
    from pyxlsb import open_workbook

    path = scratch / "book.xlsb"
    path.write_bytes(raw)
    try:
        with open_workbook(str(path)) as book:
            sheets = []
            for name in book.sheets:
                with book.get_sheet(name) as sheet:
                    sheets.append((name, bounded([cell.v for cell in row] for row in sheet.rows())))
    finally:
        path.unlink()
    return shown(sheets, plain)


def numbers(raw, *, plain, scratch, **_):
    from numbers_parser import Document

    path = scratch / "book.numbers"
    path.write_bytes(raw)
    try:
        document = Document(str(path))
        sheets = []
        for sheet in document.sheets:
            for table in sheet.tables:
                title = sheet.name if len(sheet.tables) == 1 else f"{sheet.name}: {table.name}"
                sheets.append((title, table.rows(values_only=True)))
        return shown(sheets, plain)
    finally:
        path.unlink()


def ods(raw, *, plain, **_):
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        root = ElementTree.fromstring(archive.read("content.xml"))
    return shown(((table.get(f"{_TABLE}name", ""), ods_rows(table)) for table in root.iter(f"{_TABLE}table")), plain)


def ods_rows(table):
    for row in table.iter(f"{_TABLE}table-row"):
        cells = []
        for cell in row:
            if cell.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                continue
            text = " ".join("".join(paragraph.itertext()) for paragraph in cell.iter(f"{_TEXT}p"))
            again = int(cell.get(f"{_TABLE}number-columns-repeated", "1"))
            # An empty cell that fills the row to its end comes a thousand times.
            cells.extend([text] * (min(again, 256) if text else min(again, 64)))
        again = int(row.get(f"{_TABLE}number-rows-repeated", "1"))
        for _ in range(min(again, 1000) if any(cells) else 1):
            yield cells


def csv(raw, *, plain, **_):
    text = decoded(raw)
    try:
        dialect = csv_module.Sniffer().sniff(text[:8192], ",;\t|")
    except csv_module.Error:
        dialect = csv_module.excel
    csv_module.field_size_limit(1_000_000)
    return shown([("", csv_module.reader(io.StringIO(text), dialect))], plain)


def decoded(raw):
    for encoding in ("utf-8-sig", "utf-16") if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("cp1252", errors="replace")


def bounded(rows):
    """The rows as lists, without more cells than can be shown."""
    count = 0
    found = []
    for row in rows:
        row = list(row)
        count += len(row)
        if count > MOST_CELLS:
            raise fornada_sdk.BadRequest(f"The file has more than {MOST_CELLS} cells")
        found.append(row)
    return found


def shown(sheets, plain):
    parts = []
    for title, rows in sheets:
        table = trimmed([[text_of(value) for value in row] for row in bounded(rows)])
        if title:
            parts.append(title if plain else f"## {title}")
        if table:
            parts.append("\n".join("\t".join(row) for row in table) if plain else markdown_table(table))
    return "\n\n".join(parts)


def trimmed(table):
    """Without the empty rows and columns at its ends."""
    table = list(table)
    while table and not any(table[-1]):
        table.pop()
    width = max((number + 1 for row in table for number, text in enumerate(row) if text), default=0)
    return [(row + [""] * width)[:width] for row in table] if width else []


def markdown_table(table):
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def text_of(value):
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat(sep=" ", timespec="seconds")
    return " ".join(str(value).split())
