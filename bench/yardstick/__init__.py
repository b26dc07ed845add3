"""The yardstick that is always there: a bare uvicorn front over the same runner, without anything of an API.

It stands level with Triton's C++ front, so it says on any machine how our own front would compare with that.

In: requests on any path.
Out: what the runner answered.
May import: uvicorn, fornada_sdk.wire.
"""
