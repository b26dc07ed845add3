"""Contract model: nothing is seen. What comes back says how many bytes the picture has."""


def handle_request(request, context):
    picture = request.file("image")
    return {"description": f"[contract model, not looked at] a picture of {len(picture)} bytes"}
