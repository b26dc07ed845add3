"""Contract model: no translation takes place. The text comes back, marked."""


def handle_request(request, context):
    asked = request.body.json
    source = asked.get("source_lang") or "en"
    return {"translated_text": f"[contract model, {source} to {asked['target_lang']}, not translated] {asked['text']}"}
