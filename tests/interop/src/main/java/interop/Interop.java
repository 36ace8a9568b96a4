package interop;

import interop.clients.Load;
import interop.clients.Producing;
import interop.clients.Queries;
import interop.clients.Taking;
import java.util.Arrays;
import java.util.List;

/** What RocketMQ's own classes make of a store or do to it. Each command prints JSON lines, the last one "done". */
public final class Interop {
    private Interop() {
    }

    public static void main(String[] arguments) {
        try {
            run(arguments[0], Arrays.asList(arguments).subList(1, arguments.length));
            Lines.print("done");
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // clients leave threads behind, which would keep a failed program alive
        }
        System.out.flush();
        System.exit(0);
    }

    private static void run(String command, List<String> rest) throws Exception {
        switch (command) {
            case "await-route": // NAMESRV SECONDS: until the name server knows the broker
                Brokers.awaitRoute(rest.get(0), Integer.parseInt(rest.get(1)));
                break;
            case "read-store": // CONF: through DefaultMessageStore alone, which may change the directory
                StoreReading.run(rest.get(0));
                break;
            case "inspect": // NAMESRV GROUP TOPIC...: through a broker, without changing an offset
                Inspection.run(rest.get(0), rest.get(1), rest.subList(2, rest.size()));
                break;
            case "consume": // NAMESRV GROUP EXPECTED TOPIC...: a push consumer goes on from the group's offsets
                Consumption.push(rest.get(0), rest.get(1), Integer.parseInt(rest.get(2)), rest.subList(3, rest.size()));
                break;
            case "pull": // NAMESRV GROUP TOPIC...: a pull consumer from the group's offsets; changes none
                Consumption.pull(rest.get(0), rest.get(1), rest.subList(2, rest.size()));
                break;
            case "workload": // NAMESRV MESSAGES: everything that a broker keeps in a store
                Workload.run(rest.get(0), Integer.parseInt(rest.get(1)));
                break;
            case "answer": // NAMESRV GROUP EXPECTED: answers for transactions that others have begun
                Answering.run(rest.get(0), rest.get(1), Integer.parseInt(rest.get(2)));
                break;
            case "send-compressed": // NAMESRV TOPIC TYPE...: a long message with each way of compressing
                Compressing.run(rest.get(0), rest.get(1), rest.subList(2, rest.size()));
                break;
            case "send": // NAMESRV BODY TOPIC:QUEUE_ID:KEY...: messages with this body, each to its queue
                Sending.run(rest.get(0), rest.get(1), rest.subList(2, rest.size()));
                break;
            case "load-send": // NAMESRV TOPIC SENDERS MESSAGES BODY_BYTES: how long that takes
                Load.send(rest.get(0), rest.get(1), number(rest, 2), number(rest, 3), number(rest, 4));
                break;
            case "load-latency": // NAMESRV TOPIC RATE SECONDS BODY_BYTES: how long each takes at that rate
                Load.latency(rest.get(0), rest.get(1), number(rest, 2), number(rest, 3), number(rest, 4));
                break;
            case "load-batches": // NAMESRV TOPIC SIZE MESSAGES BODY_BYTES: how long that takes
                Load.batches(rest.get(0), rest.get(1), number(rest, 2), number(rest, 3), number(rest, 4));
                break;
            case "load-consume": // NAMESRV GROUP TOPIC EXPECTED THREADS: how long that takes
                Load.consume(rest.get(0), rest.get(1), rest.get(2), number(rest, 3), number(rest, 4));
                break;
            case "produce": // NAMESRV TOPIC: messages in every way of a producer
                Producing.run(rest.get(0), rest.get(1));
                break;
            case "take": // NAMESRV GROUP TOPIC WAY EXPRESSION: a member of a group, until standard input ends
                Taking.run(rest.get(0), rest.get(1), rest.get(2), rest.get(3), rest.get(4));
                break;
            case "query": // NAMESRV TOPIC KEY ACCESS SECRET: one message, found in every way with an access key
                Queries.run(rest.get(0), rest.get(1), rest.get(2), rest.get(3), rest.get(4));
                break;
            case "request": // NAMESRV GROUP TOPIC BODY: a request, and its reply
                Requests.ask(rest.get(0), rest.get(1), rest.get(2), rest.get(3));
                break;
            case "reply": // NAMESRV GROUP EXPECTED TOPIC: replies to so many requests
                Requests.reply(rest.get(0), rest.get(1), Integer.parseInt(rest.get(2)), rest.get(3));
                break;
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    private static int number(List<String> arguments, int index) {
        return Integer.parseInt(arguments.get(index));
    }
}
