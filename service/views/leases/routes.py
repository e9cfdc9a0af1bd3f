"""The routes of clients, pools and leases."""

from __future__ import annotations

from service.contract.keys import Role
from service.contract.lease_messages import (
    AddedResources,
    AddResources,
    AskLease,
    ClientAnswer,
    ClientList,
    LeaseAnswer,
    LeaseEventLine,
    PoolAnswer,
    PoolList,
    PoolsQuery,
    PutClient,
    PutPool,
    RemovedResources,
    RemoveResources,
    ResourceList,
)
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.queries import JournalQuery, ListQuery
from service.contract.routes import Route

from . import clients as client_views
from . import leases as lease_views
from . import pools as pool_views

_TAG = "Leases"
_POOL = "/v1/pools/{client_id}/{pool_id}"
_RESOURCES = _POOL + "/resources"
_LEASE = "/v1/leases/{client_id}/{pool_id}/{key}"

LEASES = [
    Route(
        method="POST", path="/v1/leases", handler=lease_views.ask_lease, role=Role.WRITER, view="ask_lease",
        has_own_metrics=True, summary="Get the resource of a key, or a new one", tag=_TAG, body=AskLease,
        response=LeaseAnswer, problems=("unknown_pool", "unknown_region", "no_resource_available", "bad_value",
        "queue_full", "timeout"),
        description="A key that already has a resource keeps it, whatever its region, until the later of both times."
        " Otherwise it gets the resource of the region that has been free for longest. A key gets a lease that is over"
        " back, unless the resource was given to another key. The request is safe to repeat: the key has the same"
        " resource.",
    ),
    Route(
        method="GET", path=_LEASE, handler=lease_views.get_lease, role=Role.WRITER, view="lease",
        summary="The lease of a key", tag=_TAG, response=LeaseAnswer, problems=("unknown_pool", "unknown_lease"),
        description="This only reads: nothing is extended.",
    ),
    Route(
        method="DELETE", path=_LEASE, handler=lease_views.give_back, role=Role.WRITER, view="give_back_lease",
        summary="Give a lease back early", tag=_TAG, statuses=(204,),
        problems=("unknown_pool", "unknown_lease", "queue_full", "timeout"),
    ),
    Route(
        method="GET", path="/v1/leases/journal", handler=lease_views.get_lease_journal, role=Role.WRITER,
        view="lease_journal",
        summary="The journal of leases: what happened to"
        " resources", tag=_TAG, query=JournalQuery, response=LeaseEventLine,
        media_type=NDJSON_TYPE, problems=("too_many_entries",),
        description="The answer is NDJSON in the order of `seq`. Numbers grow and may have gaps; once a number was"
        " shown, no smaller one appears later. `kind` is added, removed, acquired, extended, released, liberated or"
        " moved. Where keys lease in several stores, it is also duplicate, or, for a lease in another store, wanted"
        " or returned; that store reads these lines.",
    ),
]  # fmt: skip

_CLIENT = "/v1/clients/{client_id}"
POOLS = [
    Route(
        method="GET", path="/v1/clients", handler=client_views.get_clients, role=Role.WRITER, view="clients",
        summary="Clients by id", tag=_TAG, query=ListQuery, response=ClientList,
        problems=("bad_cursor", "too_many_entries"),
    ),
    Route(
        method="PUT", path=_CLIENT, handler=client_views.put_client, role=Role.OPS, view="put_client",
        summary="Create, confirm or rename a client", tag=_TAG, body=PutClient, body_optional=True,
        response=ClientAnswer, statuses=(200, 201), description="Creating a pool also creates its client.",
    ),
    Route(
        method="GET", path=_CLIENT, handler=client_views.get_client, role=Role.WRITER, view="client",
        summary="A client", tag=_TAG, response=ClientAnswer, problems=("unknown_client",),
    ),
    Route(
        method="DELETE", path=_CLIENT, handler=client_views.remove_client, role=Role.OPS, view="delete_client",
        summary="Delete a client with all its pools and every lease in them", tag=_TAG, statuses=(204,),
        problems=("unknown_client",),
    ),
    Route(
        method="GET", path="/v1/pools", handler=pool_views.get_pools, role=Role.WRITER, view="pools",
        summary="Pools by client and id", tag=_TAG, query=PoolsQuery, response=PoolList,
        problems=("bad_cursor", "too_many_entries"),
    ),
    Route(
        method="PUT", path=_POOL, handler=pool_views.put_pool, role=Role.OPS, view="put_pool",
        summary="Create, confirm or change a pool", tag=_TAG, body=PutPool, body_optional=True, response=PoolAnswer,
        statuses=(200, 201), problems=("catalog_full",),
    ),
    Route(
        method="GET", path=_POOL, handler=pool_views.get_pool, role=Role.WRITER, view="pool",
        summary="A pool and its regions", tag=_TAG, response=PoolAnswer, problems=("unknown_pool",),
    ),
    Route(
        method="DELETE", path=_POOL, handler=pool_views.remove_pool, role=Role.OPS, view="delete_pool",
        summary="Delete a pool with every lease in it", tag=_TAG, statuses=(204,), problems=("unknown_pool",),
    ),
    Route(
        method="POST", path=_RESOURCES, handler=pool_views.add_resources, role=Role.OPS, view="add_resources",
        summary="Put resources into a region", tag=_TAG, body=AddResources, response=AddedResources,
        problems=("unknown_pool", "too_many_resources"),
    ),
    Route(
        method="GET", path=_RESOURCES, handler=pool_views.get_resources, role=Role.OPS, view="resources",
        summary="The resources of a pool", tag=_TAG, query=ListQuery, response=ResourceList,
        problems=("unknown_pool", "bad_cursor", "too_many_entries"),
    ),
    Route(
        method="DELETE", path=_RESOURCES, handler=pool_views.remove_resources, role=Role.OPS, view="remove_resources",
        summary="Take resources out of a pool", tag=_TAG, body=RemoveResources, response=RemovedResources,
        problems=("unknown_pool", "too_many_resources"),
    ),
]  # fmt: skip
