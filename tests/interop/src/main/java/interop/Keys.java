package interop;

import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;

/** What a message can be found by. */
final class Keys {
    private Keys() {
    }

    static Set<String> of(Message message) {
        Set<String> keys = new LinkedHashSet<>();
        String unique = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (unique != null) {
            keys.add(unique);
        }
        String given = message.getKeys();
        if (given != null) {
            for (String key : given.split(MessageConst.KEY_SEPARATOR)) {
                if (!key.isEmpty()) {
                    keys.add(key);
                }
            }
        }
        return keys;
    }
}
