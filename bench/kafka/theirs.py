"""A Kafka client at work on one partition; prints a line of JSON. A process of its own, so that its memory counts.

    python -m bench.kafka.theirs BOOTSTRAP confluent|aiokafka write|read|alone|tail --topic NAME --size 100 --seconds 5

Producers wait for all in-sync replicas (`acks=all`), are idempotent, and gather for up to 5 ms, with large batches:
what is usually advised for throughput. One record at a time is without gathering.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import deque
from typing import Any

from bookkeeper.cli.latency import Histogram

LINGER_MS = 5
BATCH_BYTES = 1_000_000
AT_ONCE = 1000
WARM = 1.0


def report(count: int, seconds: float, latency: Histogram | None = None) -> None:
    figures = latency.summary() if latency is not None else {}
    print(json.dumps({"records": count, "seconds": seconds, "rate": count / seconds if seconds else 0.0, **figures}))


# --- confluent-kafka ---


def new_topic(bootstrap: str, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for attempt in range(20):  # brokers register one after the other
        try:
            admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)
            return
        except Exception:
            if attempt == 19:
                raise
            time.sleep(0.5)


def confluent_write(arguments: argparse.Namespace) -> None:
    from confluent_kafka import Producer

    new_topic(arguments.bootstrap, arguments.topic)
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 200_000,
        }
    )
    body = os.urandom(arguments.size)
    failed: list[object] = []

    def done(error: object, _: object) -> None:
        if error:
            failed.append(error)

    for seconds in (WARM, arguments.seconds):
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(AT_ONCE):
                while True:
                    try:
                        producer.produce(arguments.topic, body, callback=done)
                        break
                    except BufferError:
                        producer.poll(0.01)
            count += AT_ONCE
            producer.poll(0)
        producer.flush()
        took = time.perf_counter() - began
    assert not failed, failed[:3]
    report(count, took)


def confluent_read(arguments: argparse.Namespace) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": arguments.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(arguments.topic, 0), timeout=30)
    consumer.assign([TopicPartition(arguments.topic, 0, OFFSET_BEGINNING)])
    count = size = 0
    began: float | None = None
    while count < end:
        messages = consumer.consume(10_000, 1.0)
        if messages and began is None:
            began = time.perf_counter()
        count += len(messages)
        size += sum(len(message.value()) for message in messages)
    assert began is not None
    report(count, time.perf_counter() - began)


def confluent_alone(arguments: argparse.Namespace) -> None:
    from confluent_kafka import Producer

    new_topic(arguments.bootstrap, arguments.topic)
    producer = Producer({"bootstrap.servers": arguments.bootstrap, "acks": "all", "linger.ms": 0})
    body = os.urandom(arguments.size)
    for seconds in (WARM, arguments.seconds):
        count, began, latency = 0, time.perf_counter(), Histogram()
        while (now := time.perf_counter()) - began < seconds:
            producer.produce(arguments.topic, body)
            producer.flush()
            latency.record(time.perf_counter() - now)
            count += 1
    report(count, time.perf_counter() - began, latency)


# --- aiokafka ---


def aio_producer(arguments: argparse.Namespace, linger_ms: int = LINGER_MS) -> Any:
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(
        bootstrap_servers=arguments.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=linger_ms,
        max_batch_size=BATCH_BYTES // 4,
    )


async def aiokafka_write(arguments: argparse.Namespace) -> None:
    new_topic(arguments.bootstrap, arguments.topic)
    body = os.urandom(arguments.size)
    async with aio_producer(arguments) as producer:
        for seconds in (WARM, arguments.seconds):
            count, began = 0, time.perf_counter()
            window: deque[Any] = deque()
            while time.perf_counter() - began < seconds:
                window.extend([await producer.send(arguments.topic, body) for _ in range(AT_ONCE)])
                count += AT_ONCE
                while len(window) > 20 * AT_ONCE:
                    await window.popleft()
            await asyncio.gather(*window)
            took = time.perf_counter() - began
    report(count, took)


def aio_consumer(arguments: argparse.Namespace) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(bootstrap_servers=arguments.bootstrap, enable_auto_commit=False)


async def aiokafka_read(arguments: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        arguments.topic, bootstrap_servers=arguments.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    partition = TopicPartition(arguments.topic, 0)
    async with consumer:
        end = (await consumer.end_offsets([partition]))[partition]
        count = size = 0
        began = time.perf_counter()
        while count < end:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                count += len(messages)
                size += sum(len(message.value) for message in messages)
    report(count, time.perf_counter() - began)


async def aiokafka_alone(arguments: argparse.Namespace) -> None:
    new_topic(arguments.bootstrap, arguments.topic)
    body = os.urandom(arguments.size)
    async with aio_producer(arguments, linger_ms=0) as producer:
        for seconds in (WARM, arguments.seconds):
            count, began, latency = 0, time.perf_counter(), Histogram()
            while (now := time.perf_counter()) - began < seconds:
                await producer.send_and_wait(arguments.topic, body)
                latency.record(time.perf_counter() - now)
                count += 1
    report(count, time.perf_counter() - began, latency)


async def aiokafka_tail(arguments: argparse.Namespace) -> None:
    from aiokafka import TopicPartition

    new_topic(arguments.bootstrap, arguments.topic)
    partition = TopicPartition(arguments.topic, 0)
    sent: deque[float] = deque()
    latency, count, done = Histogram(), 0, asyncio.Event()
    async with aio_producer(arguments, linger_ms=0) as producer, aio_consumer(arguments) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)

        async def follow() -> None:
            while not done.is_set() or sent:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    now = time.perf_counter()
                    for _ in messages:
                        latency.record(now - sent.popleft())

        following = asyncio.ensure_future(follow())
        began = time.perf_counter()
        window: deque[Any] = deque()
        while (elapsed := time.perf_counter() - began) < arguments.seconds:
            while count < int(elapsed * arguments.rate):
                sent.append(time.perf_counter())
                window.append(await producer.send(arguments.topic, bytes(arguments.size)))
                count += 1
            await asyncio.sleep(1 / arguments.rate)
        await asyncio.gather(*window)
        done.set()
        await following
    report(count, time.perf_counter() - began, latency)


WORK: dict[tuple[str, str], Any] = {
    ("confluent", "write"): confluent_write,
    ("confluent", "read"): confluent_read,
    ("confluent", "alone"): confluent_alone,
    ("aiokafka", "write"): aiokafka_write,
    ("aiokafka", "read"): aiokafka_read,
    ("aiokafka", "alone"): aiokafka_alone,
    ("aiokafka", "tail"): aiokafka_tail,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("client", choices=["confluent", "aiokafka"])
    parser.add_argument("what", choices=["write", "read", "alone", "tail"])
    parser.add_argument("--topic", required=True, help="a new one, but for `read`")
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=1000)
    arguments = parser.parse_args()
    work = WORK[arguments.client, arguments.what]
    if asyncio.iscoroutinefunction(work):
        asyncio.run(work(arguments))
    else:
        work(arguments)


if __name__ == "__main__":
    main()
