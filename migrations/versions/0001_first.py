"""The first schema: jobs, items, attempts and their answers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "attempts",
        sa.Column("key", KEY, autoincrement=False, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("worker_id", KEY, nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("queued_at", sa.Float(), nullable=False),
        sa.Column("claimed_at", sa.Float(), nullable=False),
        sa.Column("sent_at", sa.Float(), nullable=True),
        sa.Column("first_byte_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("duration_s", sa.Float(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("warning", sa.Text(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=True),
        sa.Column("charge", sa.Text(), nullable=False),
        sa.Column("cost_pusd", sa.BigInteger(), nullable=True),
        sa.Column("reserved_pusd", sa.BigInteger(), nullable=False),
        sa.Column("reported_pusd", sa.BigInteger(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("response_id", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("account", sa.Text(), nullable=True),
        sa.Column("replays", KEY, nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_attempts")),
    )
    op.create_index("ix_attempts_job_id_state", "attempts", ["job_id", "state"], unique=False)
    op.create_table(
        "asked",
        sa.Column("ask", KEY, autoincrement=False, nullable=False),
        sa.Column("attempt_key", KEY, nullable=False),
        sa.PrimaryKeyConstraint("ask", name=op.f("pk_asked")),
    )
    op.create_table(
        "events",
        sa.Column("id", KEY, autoincrement=True, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("item_id", KEY, nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_job_id_id", "events", ["job_id", "id"], unique=False)
    op.create_table(
        "incoming",
        sa.Column("job_id", KEY, autoincrement=False, nullable=False),
        sa.Column("position", KEY, autoincrement=False, nullable=False),
        sa.Column("line_no", KEY, nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(length=16), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("worst_pusd", sa.BigInteger(), nullable=True),
        sa.Column("rank", KEY, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "position", name=op.f("pk_incoming")),
    )
    op.create_index("ix_incoming_job_id_custom_id", "incoming", ["job_id", "custom_id"], unique=False)
    op.create_table(
        "ledgers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("ledger_id", sa.Text(), nullable=False),
        sa.Column("next_item_id", KEY, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("moved_to", sa.Text(), nullable=True),
        sa.Column("move_token", sa.Text(), nullable=True),
        sa.Column("move_began_at", sa.Float(), nullable=True),
        sa.Column("move_ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledgers")),
    )
    op.create_table(
        "workers",
        sa.Column("id", KEY, autoincrement=True, nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("incarnation", name=op.f("uq_workers_incarnation")),
    )
    op.create_table(
        "answers",
        sa.Column("key", KEY, autoincrement=False, nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["attempts.key"], name=op.f("fk_answers_key_attempts")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_answers")),
    )
    op.create_table(
        "heartbeats",
        sa.Column("worker_id", KEY, autoincrement=False, nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("in_flight", sa.Integer(), nullable=False),
        sa.Column("items_per_s", sa.Float(), nullable=True),
        sa.Column("tokens_per_s", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_heartbeats_worker_id_workers")),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_heartbeats")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", KEY, autoincrement=True, nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("was_cancelled", sa.Boolean(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("input_digest", sa.Text(), nullable=False),
        sa.Column("params_digest", sa.Text(), nullable=False),
        sa.Column("total", KEY, nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("trial_verdict", sa.Text(), nullable=True),
        sa.Column("on_unknown", sa.Text(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("climb", sa.Text()),
        sa.Column("retry_times", sa.Integer(), nullable=False),
        sa.Column("rpm", sa.BigInteger(), nullable=True),
        sa.Column("tpm", sa.BigInteger(), nullable=True),
        sa.Column("max_cost_pusd", sa.BigInteger(), nullable=True),
        sa.Column("spent_pusd", sa.BigInteger(), nullable=False),
        sa.Column("reserved_pusd", sa.BigInteger(), nullable=False),
        sa.Column("throttle_until_at", sa.Float(), nullable=True),
        sa.Column("throttle_wait_s", sa.Float(), nullable=True),
        sa.Column("is_shared", sa.Boolean(), nullable=False),
        sa.Column("holder", KEY, nullable=True),
        sa.Column("held_since_at", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("active_s", sa.Float(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("epoch_token", sa.Text(), nullable=True),
        sa.Column("written_at", sa.Float(), nullable=True),
        sa.Column("purge_began_at", sa.Float(), nullable=True),
        sa.Column("purged_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["holder"], ["workers.id"], name=op.f("fk_jobs_holder_workers")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("task_id", name=op.f("uq_jobs_task_id")),
    )
    op.create_table(
        "leases",
        sa.Column("job_id", KEY, autoincrement=False, nullable=False),
        sa.Column("worker_id", KEY, autoincrement=False, nullable=False),
        sa.Column("wants", sa.Integer(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("in_flight", sa.Integer(), nullable=False),
        sa.Column("items_per_s", sa.Float(), nullable=True),
        sa.Column("tokens_per_s", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_leases_job_id_jobs")),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_leases_worker_id_workers")),
        sa.PrimaryKeyConstraint("job_id", "worker_id", name=op.f("pk_leases")),
    )
    op.create_table(
        "items",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("position", KEY, nullable=False),
        sa.Column("line_no", KEY, nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("is_current", sa.Boolean(), nullable=False),
        sa.Column("is_trial", sa.Boolean(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(length=16), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("worker_id", KEY, nullable=True),
        sa.Column("answer_key", KEY, nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("throttled_s", sa.Float(), nullable=False),
        sa.Column("reasks", sa.Integer(), nullable=False),
        sa.Column("consents", sa.Integer(), nullable=False),
        sa.Column("rank", KEY, nullable=False),
        sa.Column("not_before_at", sa.Float(), nullable=False),
        sa.Column("wait_s", sa.Float(), nullable=False),
        sa.Column("worst_pusd", sa.BigInteger(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'completed', 'failed', 'in_doubt', 'rejected', 'cancelled')",
            name=op.f("ck_items_state"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_items_job_id_jobs")),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_items_worker_id_workers")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_items")),
        sa.UniqueConstraint("job_id", "custom_id", "revision", name=op.f("uq_items_job_id_custom_id_revision")),
    )
    op.create_index("ix_items_job_id_position", "items", ["job_id", "position"], unique=False)
    op.create_index(
        "ix_items_job_id_state_rank_id",
        "items",
        ["job_id", "state", "rank", "id"],
        unique=False,
        sqlite_where=sa.text("is_current = 1"),
        postgresql_where=sa.text("is_current"),
    )
    op.create_index(
        "ix_items_trial",
        "items",
        ["job_id", "id"],
        unique=False,
        sqlite_where=sa.text("is_trial = 1"),
        postgresql_where=sa.text("is_trial"),
    )
    op.create_table(
        "copies",
        sa.Column("item_id", KEY, autoincrement=False, nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_copies_item_id_items")),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_copies")),
    )
    op.create_table(
        "requests",
        sa.Column("item_id", KEY, autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_requests_item_id_items")),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_requests")),
    )
    op.create_table(
        "traces",
        sa.Column("key", KEY, autoincrement=False, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["attempts.key"], name=op.f("fk_traces_key_attempts")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_traces")),
    )


def downgrade() -> None:
    raise NotImplementedError("a ledger is never taken back to an older schema")
