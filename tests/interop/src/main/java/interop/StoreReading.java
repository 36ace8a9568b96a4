package interop;

import java.io.FileInputStream;
import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A store directory through DefaultMessageStore: every record of the log, every queue, every key. */
final class StoreReading {
    private static final int BLANK_MAGIC = 0xCBD43194;

    private StoreReading() {
    }

    static void run(String conf) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        Properties properties = new Properties();
        try (InputStream file = new FileInputStream(conf)) {
            properties.load(file);
        }
        MixAll.properties2Object(properties, config);
        config.setHaListenPort(0);
        config.setBrokerRole(BrokerRole.SLAVE); // one that is no slave delivers delayed messages, into this directory
        DefaultMessageStore store = open(config);
        if (!store.load()) {
            throw new IllegalStateException("DefaultMessageStore.load() refused " + config.getStorePathRootDir());
        }
        store.start();
        try {
            Lines.print("log", "begin", store.getMinPhyOffset(), "end", store.getMaxPhyOffset());
            List<MessageExt> records = records(store, config.getMappedFileSizeCommitLog());
            queues(store, records);
            keys(store, records);
        } finally {
            store.shutdown();
        }
    }

    /** 5.x asks for the topics as a fifth argument. */
    private static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        BrokerStatsManager statistics = new BrokerStatsManager("interop", true);
        for (Constructor<?> constructor : DefaultMessageStore.class.getConstructors()) {
            if (constructor.getParameterCount() == 4) {
                return (DefaultMessageStore) constructor.newInstance(config, statistics, null, new BrokerConfig());
            }
            if (constructor.getParameterCount() == 5) {
                return (DefaultMessageStore) constructor.newInstance(
                    config, statistics, null, new BrokerConfig(), new ConcurrentHashMap<>());
            }
        }
        throw new IllegalStateException("no known constructor of DefaultMessageStore");
    }

    private static List<MessageExt> records(DefaultMessageStore store, int fileBytes) {
        List<MessageExt> records = new ArrayList<>();
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            ByteBuffer head = store.getCommitLogData(offset).getByteBuffer();
            head.getInt();
            if (head.getInt() == BLANK_MAGIC) {
                offset += fileBytes - offset % fileBytes;
                continue;
            }
            MessageExt record = store.lookMessageByOffset(offset);
            Lines.print("record", record);
            records.add(record);
            offset += record.getStoreSize();
        }
        return records;
    }

    private static void queues(DefaultMessageStore store, List<MessageExt> records) throws Exception {
        Map<String, Set<Integer>> queues = new LinkedHashMap<>();
        for (MessageExt record : records) {
            queues.computeIfAbsent(record.getTopic(), topic -> new TreeSet<>()).add(record.getQueueId());
        }
        for (Map.Entry<String, Set<Integer>> ofTopic : queues.entrySet()) {
            for (int queueId : ofTopic.getValue()) {
                queue(store, ofTopic.getKey(), queueId);
            }
        }
    }

    private static void queue(DefaultMessageStore store, String topic, int queueId) throws Exception {
        long begin = store.getMinOffsetInQueue(topic, queueId);
        long end = store.getMaxOffsetInQueue(topic, queueId);
        List<Long> commitLogOffsets = new ArrayList<>();
        for (long next = begin; next < end;) {
            GetMessageResult result = store.getMessage("interop", topic, queueId, next, 32, null);
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                commitLogOffsets.add(MessageDecoder.decode(buffer).getCommitLogOffset());
            }
            result.release();
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException(topic + " " + queueId + " stops at " + next + ": " + result.getStatus());
            }
            next = result.getNextBeginOffset();
        }
        Lines.print("queue", "topic", topic, "queue_id", queueId, "begin", begin, "end", end,
            "commit_log_offsets", commitLogOffsets);
    }

    private static void keys(DefaultMessageStore store, List<MessageExt> records) {
        Map<String, Set<String>> keys = new LinkedHashMap<>();
        for (MessageExt record : records) {
            Set<String> ofTopic = keys.computeIfAbsent(record.getTopic(), topic -> new LinkedHashSet<>());
            ofTopic.addAll(Keys.of(record));
        }
        keys.forEach((topic, ofTopic) -> ofTopic.forEach(key -> key(store, topic, key)));
    }

    private static void key(DefaultMessageStore store, String topic, String key) {
        QueryMessageResult result = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        Set<Long> commitLogOffsets = new TreeSet<>();
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            MessageExt found = MessageDecoder.decode(buffer);
            if (Keys.of(found).contains(key)) { // the index knows only a hash of it
                commitLogOffsets.add(found.getCommitLogOffset());
            }
        }
        result.release();
        Lines.print("key", "topic", topic, "key", key, "commit_log_offsets", commitLogOffsets);
    }
}
