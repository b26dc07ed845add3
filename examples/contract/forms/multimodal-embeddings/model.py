"""Contract model: measures texts and a picture, in the shape of the SDK's MultimodalEmbeddings."""


def handle_request(request, context):
    asked = request.body.json
    data = [[float(len(text)), 0.0] for text in asked.get("text") or ()]
    if asked.get("image"):
        data.append([float(len(request.file("image"))), 1.0])
    return {"data": data, "shape": [len(data), 2]}
