# --- what is sent: the message, and the place where it then stands ----------------------------------------------------

cdef object NO_FLAG = 0                 # as an object, to know the default without a call


@cython.final
@cython.freelist(256)
cdef class Message:
    """One message to send."""

    cdef readonly str topic
    cdef readonly object body
    cdef readonly str tags
    cdef readonly tuple keys
    cdef readonly dict properties
    cdef readonly int flag
    cdef readonly int sys_flag          # what the record will say of the body, such as that it is compressed

    def __init__(self, str topic not None, object body, *, str tags=None, object keys=(), object properties=None,
                 object flag=0):
        if tags is not None:
            check_tags(tags)
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = keys if type(keys) is tuple else (keys,) if isinstance(keys, str) else tuple(keys)
        if self.keys and "" in self.keys:
            raise MessageRejected(f"keys {self.keys!r}: an empty key finds nothing and would not come back: leave it out")
        self.properties = None if properties is None else dict(properties)
        self.flag = 0 if flag is NO_FLAG else flag_of(flag)

    def with_body(self, bytes body not None, int sys_flag):
        cdef Message message = Message.__new__(Message)
        message.topic = self.topic
        message.body = body
        message.tags = self.tags
        message.keys = self.keys
        message.properties = self.properties
        message.flag = self.flag
        message.sys_flag = sys_flag
        return message

    def __repr__(self):
        size = f"{len(self.body)} B" if isinstance(self.body, bytes) else type(self.body).__name__
        return f"Message({self.topic!r}, <{size}>, tags={self.tags!r}, keys={self.keys!r})"

    def __eq__(self, other):
        return isinstance(other, Message) and self._fields() == (<Message>other)._fields()

    __hash__ = None

    cdef tuple _fields(self):
        return self.topic, self.body, self.tags, self.keys, self.properties or {}, self.flag, self.sys_flag

    def __reduce__(self):
        return stored_message, (self.topic, self.body, self.tags, self.keys, self.properties, self.flag, self.sys_flag)


cdef inline int flag_of(object flag) except? -1:
    """The flag of a message. Raises TypeError and ValueError."""
    cdef long value
    cdef int overflow = 0
    if type(flag) is not int and (isinstance(flag, bool) or not isinstance(flag, int)):
        raise TypeError(f"flag={flag!r}: a flag is a whole number of 32 bits with a sign")
    value = PyLong_AsLongAndOverflow(flag, &overflow)
    if overflow or not -2147483648 <= value <= 2147483647:
        raise ValueError(f"flag={flag}: a flag has 32 bits with a sign: -2,147,483,648 to 2,147,483,647")
    return <int>value


cdef int check_tags(str tags) except -1:
    """Raise MessageRejected for what no expression of a handler can select."""
    if not tags:
        raise MessageRejected("tags '': empty tags would come back as None: leave them out, or give None")
    if (tags == "*" or tags[0] <= 32 or tags[len(tags) - 1] <= 32 or "||" in tags):
        raise MessageRejected(
            f"tags {tags[:80]!r}: no expression but * selects it: a tag is neither * nor has || in it, nor a blank at "
            "either end")
    return 0


def stored_message(str topic not None, object body, str tags, object keys, object properties, int flag, int sys_flag=0):
    cdef Message message = Message(topic, body, properties=properties, flag=flag)
    message.tags = tags  # an earlier version may have made these two: what was taken is not refused now
    message.keys = tuple(keys)
    message.sys_flag = sys_flag
    return message


_message = stored_message  # in what earlier versions pickled


@cython.final
@cython.no_gc  # it refers to a queue, which never refers back
@cython.freelist(256)
cdef class SendResult:
    """Where a sent message stands."""

    cdef readonly object queue
    cdef readonly uint64_t queue_offset
    cdef readonly uint64_t commit_log_offset
    cdef readonly uint64_t commit_log_end
    cdef readonly bint is_duplicate     # nothing was sent: the log had a message with this key of send_once
    cdef readonly str offset_message_id  # where a broker has it; None in a store
    cdef char copies                    # 0: nobody waited for followers; 1: they have it; 2: they have not
    cdef char unique_key[32]
    cdef str foreign_key                # the id of a message that another client made, if it is not 32 bytes; else None

    @property
    def message_id(self):
        return self.unique_key[:32].decode("ascii") if self.foreign_key is None else self.foreign_key

    @property
    def replicated(self):
        return None if self.copies == 0 else self.copies == 1

    def __repr__(self):
        return (f"SendResult(message_id={self.message_id!r}, queue={self.queue!r}, "
                f"queue_offset={self.queue_offset}, commit_log_offset={self.commit_log_offset}"
                f"{', is_duplicate=True' if self.is_duplicate else ''}"
                f"{'' if self.copies == 0 else f', replicated={self.copies == 1}'})")

    def __eq__(self, other):
        return isinstance(other, SendResult) and self.__reduce__() == other.__reduce__()

    __hash__ = None

    def __reduce__(self):
        return sent_result, (
            self.queue, self.queue_offset, self.commit_log_offset, self.commit_log_end, self.message_id,
            self.is_duplicate, self.offset_message_id, self.replicated)


def sent_result(queue, queue_offset, commit_log_offset, commit_log_end, str message_id not None,
                 bint is_duplicate=False, str offset_message_id=None, replicated=None):
    cdef SendResult result = SendResult.__new__(SendResult)
    result.queue = queue
    result.queue_offset = queue_offset
    result.commit_log_offset = commit_log_offset
    result.commit_log_end = commit_log_end
    result.is_duplicate = is_duplicate
    result.offset_message_id = offset_message_id
    result.copies = 0 if replicated is None else 1 if replicated else 2
    name_result(result, message_id)
    return result


def duplicate_of(ReceivedMessage message not None, object queue not None):
    return sent_result(queue, message.queue_offset, message.commit_log_offset,
                        message.commit_log_offset + message.frame.size, message.message_id, True)


cdef int name_result(SendResult result, str message_id) except -1:
    cdef bytes unique_key = message_id.encode()
    if len(unique_key) == 32 and message_id.isascii():
        memcpy(result.unique_key, PyBytes_AS_STRING(unique_key), 32)
    else:
        result.foreign_key = message_id
    return 0
