# --- batches and results: what may go together, and where it then stands ----------------------------------------------

cdef int place_result(SendResult result, object queue, Section *section) except -1:
    """Say where the first record of an append stands, and where its last record ends."""
    result.queue = queue
    result.queue_offset = section.queue_offset
    result.commit_log_offset = section.commit_log_offset
    result.commit_log_end = section.commit_log_offset + section.plan.size
    result.copies = section.plan.replicated
    return 0


cdef int place_results(list results, object queue, _Staging staging) except -1:
    """Say of every record of an append where it stands."""
    cdef uint64_t commit_log_offset = staging.section.commit_log_offset
    cdef int number
    cdef SendResult result
    for number in range(staging.section.plan.count):
        result = <SendResult>results[number]
        result.queue = queue
        result.queue_offset = staging.section.queue_offset + number
        result.commit_log_offset = commit_log_offset
        commit_log_offset += staging.section.sizes[number]
        result.commit_log_end = commit_log_offset
        result.copies = staging.section.plan.replicated
    return 0


cdef SendResult named_as(ReceivedMessage message):
    """A result with the id of a message that is appended again."""
    cdef SendResult result = SendResult.__new__(SendResult)
    name_result(result, message.message_id)
    return result


cdef int check_messages(list batch) except -1:
    for item in batch:
        if not isinstance(item, Message):
            raise TypeError(f"a batch holds Message objects, not {type(item).__name__}")
    return 0


cdef inline int check_member(list batch, Message message, Route route, int number, str sharding_key) except -1:
    """Raise MessageRejected when a message cannot go to queue ``number`` of ``route`` with the others of its batch."""
    if message.topic != route.topic:
        raise MessageRejected(f"a batch goes to one queue: topic {message.topic!r} in a batch for {route.topic!r}")
    if route.compact and route.pick(route.sharding(message, sharding_key)) != number:
        raise MessageRejected(
            f"a batch goes to one queue: topic {route.topic!r} is compact, and its keys {batch[0].keys[0]!r} and "
            f"{message.keys[0]!r} have different queues: make a batch for each, or give a sharding_key")
    return 0


cdef int check_inner(list batch) except -1:
    """A compressed batch has one topic and one tag: its only consume queue entry is what tags select by."""
    cdef Message first, message
    check_messages(batch)
    first = batch[0]
    for message in batch:
        if message.topic != first.topic:
            raise MessageRejected(f"a batch goes to one queue: topic {message.topic!r} in a batch for {first.topic!r}")
        if message.sys_flag:
            raise MessageRejected(
                "a message whose body is compressed already cannot be part of a compressed batch: send it alone")
        if (message.tags or None) != (first.tags or None):
            raise MessageRejected(
                f"a compressed batch has one tag, by which it is selected: {message.tags!r} in a batch of {first.tags!r}; "
                "send a batch for each tag, or without compression")
    return 0


cdef tuple keys_of(list batch):
    """Every key in a batch once, in order: the keys of its record in the index."""
    cdef Message message
    cdef dict keys = {}
    for message in batch:
        for key in message.keys:
            keys[key] = None
    return tuple(keys)
