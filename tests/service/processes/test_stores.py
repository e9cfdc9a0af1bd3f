"""Test which store a process opens for the samples of its curves."""

from config import Settings
from service.stores import open_sampling_store, open_store
from storage.engines.replica import ReplicaFirst


async def test_curves_are_sampled_from_the_server_that_the_settings_name(postgres_url: str) -> None:
    settings = Settings(store=postgres_url, sampling_store=postgres_url)
    store = await open_store(settings)
    sampled = await open_sampling_store(settings, store)
    assert isinstance(sampled, ReplicaFirst)
    await sampled.close()
    await store.close()


async def test_without_a_replica_curves_are_sampled_from_the_store_itself(postgres_url: str) -> None:
    settings = Settings(store=postgres_url)
    store = await open_store(settings)
    assert await open_sampling_store(settings, store) is store
    await store.close()
