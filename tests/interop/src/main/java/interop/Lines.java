package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/** JSON lines on standard output: a kind, and fields. */
public final class Lines {
    private Lines() {
    }

    /** Prints one line; names and values take turns. */
    public static synchronized void print(String kind, Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("kind", kind);
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        System.out.println(JSON.toJSONString(fields, SerializerFeature.DisableCircularReferenceDetect));
    }

    /** Prints every field of a message. */
    static void print(String kind, MessageExt message) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        print(kind,
            "topic", message.getTopic(),
            "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(),
            "commit_log_offset", message.getCommitLogOffset(),
            "size", message.getStoreSize(),
            "flag", message.getFlag(),
            "sys_flag", message.getSysFlag(),
            "born_timestamp", message.getBornTimestamp(),
            "born_host", host(message.getBornHost()),
            "store_timestamp", message.getStoreTimestamp(),
            "store_host", host(message.getStoreHost()),
            "reconsume_times", message.getReconsumeTimes(),
            "prepared_transaction_offset", message.getPreparedTransactionOffset(),
            "body_crc", message.getBodyCRC(),
            "body", Base64.getEncoder().encodeToString(body),
            "properties", new TreeMap<>(message.getProperties()));
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }
}
