"""Contract model: compares sentences by their letters, in the shape of the SDK's SentenceSimilarity."""


def handle_request(request, context):
    asked = request.body.json
    wanted = set(asked["source"])
    return [round(len(wanted & set(each)) / len(wanted | set(each)), 4) for each in asked["sentences"]]
