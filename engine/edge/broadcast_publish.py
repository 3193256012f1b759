"""Publishes over a distributed group: the learner broadcasts, the samplers receive, no folder between.

The way of one publish, as its learner meets it
- Its store (torch's TCPStore) listens before BeginPublish. The engine connects to it once, before
  any server is told, so that a wrong address is refused and hangs nobody.
- BeginPublish checks what PublishWeights checks but the folder, waits for evaluation, and answers
  `publish_id` and `world_size` = 1 + the ranks of the servers that are up. All of them are told to
  join at once: SGLang answers when the group is whole, and samples nothing until then. So the
  learner makes its side of the group at once, as rank 0, with `publish_id` as the group's name and
  as the prefix of its keys in the store.
- PublishBucket(0) may be asked before the learner's side of the group stands, and should: it fails
  at once where a server does not join, and then the learner closes its store and its group, which
  frees the servers that wait in it. Once all have joined it pauses the servers. Each bucket is
  handed to all servers at once and answers when each has it: the learner broadcasts its tensors
  from rank 0, each by itself, in the order of the list, while the RPC is under way.
- CommitPublish wants every tensor of the served policy; tied heads may be left out or come twice as
  in a folder. It answers when the servers go on as the version. Then the learner may close its
  group: the servers have left it.
- PublishWeights of the same version names the folder, whenever it is written. It moves no sampler,
  waits for no other publish, and may come after a later version was committed.

What is refused, and leaves an open publish as it was (INVALID_ARGUMENT, not to be asked again)
- A bucket out of order or without tensors; a tensor that the served policy has not, of another
  shape, of no floating type, or that came before; a commit with tensors missing.
- A publish that is not open, by its id: it was ended, and every failure ends one.

What fails, and ends the publish (PUBLISH_FAILED, to be begun again with a new store)
- A server that does not join, dies or refuses; a lease that ends; no server that is up.
- A server that failed is set aside. One that was handed a bucket holds mixed weights: it is set
  aside too, its requests go elsewhere, and it gets the newest folder. Others go on as they were.
- The version before stays. While it has no folder, servers that are set aside wait for that.

Invariants
- One publish at a time is open, and none beside one by folder. A learner that publishes anything
  newer, or begins again, ends the one that is open; so does a learner that takes the run over.
- A caller that goes away leaves a publish to its lease; the same request asked again joins it.
- The journal names no version of a group before its folder was seen to be whole.
"""
