--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: alembic_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);


--
-- Name: answers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.answers (
    key bigint NOT NULL,
    raw bytea NOT NULL
);


--
-- Name: asked; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.asked (
    ask bigint NOT NULL,
    attempt_key bigint NOT NULL
);


--
-- Name: attempts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.attempts (
    key bigint NOT NULL,
    job_id bigint NOT NULL,
    worker_id bigint NOT NULL,
    endpoint text NOT NULL,
    state text NOT NULL,
    queued_at double precision NOT NULL,
    claimed_at double precision NOT NULL,
    sent_at double precision,
    first_byte_at double precision,
    ended_at double precision,
    duration_s double precision,
    http_status integer,
    cause text,
    message text,
    finish_reason text,
    warning text,
    prompt_tokens bigint,
    completion_tokens bigint,
    cached_tokens bigint,
    reasoning_tokens bigint,
    charge text NOT NULL,
    cost_pusd bigint,
    reserved_pusd bigint NOT NULL,
    reported_pusd bigint,
    request_id text,
    response_id text,
    idempotency_key text,
    account text,
    replays bigint
);


--
-- Name: copies; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.copies (
    item_id bigint NOT NULL,
    raw bytea NOT NULL
);


--
-- Name: events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    item_id bigint,
    at double precision NOT NULL,
    kind text NOT NULL,
    detail text
);


--
-- Name: events_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: events_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;


--
-- Name: heartbeats; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.heartbeats (
    worker_id bigint NOT NULL,
    beat bigint NOT NULL,
    in_flight integer NOT NULL,
    items_per_s double precision,
    tokens_per_s double precision
);


--
-- Name: incoming; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.incoming (
    job_id bigint NOT NULL,
    "position" bigint NOT NULL,
    line_no bigint NOT NULL,
    custom_id text NOT NULL,
    request_digest bytea,
    model text,
    note text,
    path text,
    body bytea,
    worst_pusd bigint,
    rank bigint NOT NULL
);


--
-- Name: items; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.items (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    "position" bigint NOT NULL,
    line_no bigint NOT NULL,
    custom_id text NOT NULL,
    revision integer NOT NULL,
    is_current boolean NOT NULL,
    is_trial boolean NOT NULL,
    request_digest bytea,
    model text,
    note text,
    state text NOT NULL,
    fence integer NOT NULL,
    worker_id bigint,
    answer_key bigint,
    tries integer NOT NULL,
    throttled_s double precision NOT NULL,
    reasks integer NOT NULL,
    consents integer NOT NULL,
    rank bigint NOT NULL,
    not_before_at double precision NOT NULL,
    wait_s double precision NOT NULL,
    worst_pusd bigint,
    cause text,
    message text,
    CONSTRAINT ck_items_state CHECK ((state = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text, 'in_doubt'::text, 'rejected'::text, 'cancelled'::text])))
);


--
-- Name: jobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.jobs (
    id bigint NOT NULL,
    task_id text NOT NULL,
    state text NOT NULL,
    reason text,
    message text,
    was_cancelled boolean NOT NULL,
    spec text NOT NULL,
    input_digest text NOT NULL,
    params_digest text NOT NULL,
    total bigint NOT NULL,
    phase text NOT NULL,
    trial_verdict text,
    on_unknown text NOT NULL,
    concurrency integer NOT NULL,
    climb text,
    retry_times integer NOT NULL,
    rpm bigint,
    tpm bigint,
    max_cost_pusd bigint,
    spent_pusd bigint NOT NULL,
    reserved_pusd bigint NOT NULL,
    throttle_until_at double precision,
    throttle_wait_s double precision,
    is_shared boolean NOT NULL,
    holder bigint,
    held_since_at double precision,
    created_at double precision NOT NULL,
    started_at double precision,
    ended_at double precision,
    active_s double precision NOT NULL,
    epoch bigint NOT NULL,
    epoch_token text,
    written_at double precision,
    purge_began_at double precision,
    purged_at double precision
);


--
-- Name: jobs_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: jobs_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.jobs_id_seq OWNED BY public.jobs.id;


--
-- Name: leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leases (
    job_id bigint NOT NULL,
    worker_id bigint NOT NULL,
    wants integer NOT NULL,
    slots integer NOT NULL,
    in_flight integer NOT NULL,
    items_per_s double precision,
    tokens_per_s double precision
);


--
-- Name: ledgers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.ledgers (
    id integer NOT NULL,
    ledger_id text NOT NULL,
    next_item_id bigint NOT NULL,
    created_at double precision NOT NULL,
    moved_to text,
    move_token text,
    move_began_at double precision,
    move_ended_at double precision
);


--
-- Name: ledgers_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.ledgers_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: ledgers_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.ledgers_id_seq OWNED BY public.ledgers.id;


--
-- Name: requests; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.requests (
    item_id bigint NOT NULL,
    path text NOT NULL,
    body bytea NOT NULL
);


--
-- Name: traces; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.traces (
    key bigint NOT NULL,
    packed bytea NOT NULL
);


--
-- Name: workers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.workers (
    id bigint NOT NULL,
    incarnation text NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    folder text NOT NULL,
    version text NOT NULL,
    started_at double precision NOT NULL,
    boot_id text,
    ended_at double precision
);


--
-- Name: workers_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.workers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: workers_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.workers_id_seq OWNED BY public.workers.id;


--
-- Name: events id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);


--
-- Name: jobs id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs ALTER COLUMN id SET DEFAULT nextval('public.jobs_id_seq'::regclass);


--
-- Name: ledgers id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ledgers ALTER COLUMN id SET DEFAULT nextval('public.ledgers_id_seq'::regclass);


--
-- Name: workers id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.workers ALTER COLUMN id SET DEFAULT nextval('public.workers_id_seq'::regclass);


--
-- Data for Name: alembic_version; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.alembic_version VALUES ('0001');


--
-- Data for Name: answers; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.answers VALUES (19922945, '\x7b226964223a2263686174636d706c2d6d6f636b2d313865636464636563373632366633652d35222c226f626a656374223a22636861742e636f6d706c6574696f6e222c2263726561746564223a313739363035343233352c226d6f64656c223a226d6f636b222c2263686f69636573223a5b7b22696e646578223a302c226d657373616765223a7b22726f6c65223a22617373697374616e74222c22636f6e74656e74223a225b5b6130303031385d5d2077616c6c732073746f6e652076696c6c61676520736d616c6c20746f776e7320686f7572732077616c6c7320636f756e7465642066726f6d2074686520677261696e206576656e696e67206576656e696e6720677261696e2072697665722064697374616e7420686f75727320616e64206e6f7420776865726520626f61747320616c6f6e672077616c6c7320616e64206265666f7265207768696c65207269766572207175696574227d2c226c6f6770726f6273223a6e756c6c2c2266696e6973685f726561736f6e223a2273746f70227d5d2c227573616765223a7b2270726f6d70745f746f6b656e73223a32322c22636f6d706c6574696f6e5f746f6b656e73223a32392c22746f74616c5f746f6b656e73223a35317d7d');
INSERT INTO public.answers VALUES (10485761, '\x3c21646f63747970652068746d6c3e3c68746d6c3e3c686561643e3c7469746c653e476174657761793c2f7469746c653e3c2f686561643e3c626f64793e3c68313e4f6e65206d6f6d656e742c20706c656173653c2f68313e3c2f626f64793e3c2f68746d6c3e0a');
INSERT INTO public.answers VALUES (8388609, '\x3c21646f63747970652068746d6c3e3c68746d6c3e3c686561643e3c7469746c653e476174657761793c2f7469746c653e3c2f686561643e3c626f64793e3c68313e4f6e65206d6f6d656e742c20706c656173653c2f68313e3c2f626f64793e3c2f68746d6c3e0a');


--
-- Data for Name: asked; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: attempts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.attempts VALUES (19922945, 1, 1, 'http://127.0.0.1:41545/v1', 'answered', 1796054234.963484, 1796054235.4803529, 1796054235.5178602, 1796054235.6526415, 1796054235.652742, 0.13488178999978118, 200, NULL, NULL, 'stop', NULL, 22, 29, NULL, NULL, 'certain', 80000000, 0, NULL, 'req-5', 'chatcmpl-mock-18ecddcec7626f3e-5', NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (4194305, 1, 1, 'http://127.0.0.1:41545/v1', 'unknown', 1796054234.963484, 1796054235.3529534, 1796054235.4755518, NULL, 1796054235.6659007, 0.19034927799657453, NULL, 'connection_lost', 'the connection to 127.0.0.1:41545 was reset before an answer came', NULL, NULL, NULL, NULL, NULL, NULL, 'possible', NULL, 218000000, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (10485761, 1, 1, 'http://127.0.0.1:41545/v1', 'unusable', 1796054234.963484, 1796054235.4803529, 1796054235.5170598, 1796054235.6826017, 1796054235.682698, 0.16563996800687164, 200, 'html', '200 OK: a web page instead of an answer: Gateway', NULL, NULL, NULL, NULL, NULL, NULL, 'possible', NULL, 218000000, NULL, 'req-4', NULL, NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (8388609, 1, 1, 'http://127.0.0.1:41545/v1', 'unusable', 1796054234.963484, 1796054235.4803529, 1796054235.5159078, 1796054235.712755, 1796054235.7129006, 0.19699225999647751, 200, 'html', '200 OK: a web page instead of an answer: Gateway', NULL, NULL, NULL, NULL, NULL, NULL, 'possible', NULL, 218000000, NULL, 'req-3', NULL, NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (1048577, 1, 2, 'http://127.0.0.1:41545/v1', 'intent', 1796054234.963484, 1796054237.0690405, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'possible', NULL, 218000000, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (2097153, 1, 2, 'http://127.0.0.1:41545/v1', 'intent', 1796054234.963484, 1796054237.1444044, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'possible', NULL, 218000000, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (3145729, 1, 2, 'http://127.0.0.1:41545/v1', 'intent', 1796054234.963484, 1796054237.1444044, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'possible', NULL, 218000000, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (5242881, 1, 2, 'http://127.0.0.1:41545/v1', 'intent', 1796054234.963484, 1796054237.1444044, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'possible', NULL, 218000000, NULL, NULL, NULL, NULL, NULL, NULL);


--
-- Data for Name: copies; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: events; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.events VALUES (1, 1, NULL, 1796054234.963484, 'registered', '{"total": 20, "input_digest": "a9d4f73c379aada546c4dcbb996bf733731bdd6b1d1e9d40b2509c27d78a7715", "prices": {"price": {"input_per_1m_usd": "1", "output_per_1m_usd": "2", "cached_input_per_1m_usd": null, "cache_write_per_1m_usd": null, "per_request_usd": "0", "source": null}}}');
INSERT INTO public.events VALUES (2, 1, NULL, 1796054235.053669, 'open', NULL);
INSERT INTO public.events VALUES (3, 1, NULL, 1796054236.0966358, 'phase', '{"phase": "trial", "trial": "failed"}');
INSERT INTO public.events VALUES (4, 1, NULL, 1796054236.1203985, 'pause', '{"reason": "trial_gate", "message": "3 of 4 trial items did not complete"}');
INSERT INTO public.events VALUES (5, 1, NULL, 1796054236.7325177, 'phase', '{"phase": "full", "trial": "failed"}');
INSERT INTO public.events VALUES (6, 1, NULL, 1796054236.7325177, 'resume', NULL);


--
-- Data for Name: heartbeats; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.heartbeats VALUES (1, 1, 0, NULL, NULL);
INSERT INTO public.heartbeats VALUES (2, 1, 0, NULL, NULL);


--
-- Data for Name: incoming; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: items; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.items VALUES (6, 1, 5, 6, 'a00005', 1, true, false, '\xcc1a9d0f045b09098a42dfaae3bf729f', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (7, 1, 6, 7, 'a00006', 1, true, false, '\x2603ab012faa5903dc6ae7229982fecd', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (9, 1, 8, 9, 'a00008', 1, true, false, '\xb2602ee0d4e690494125e4fea46efbe5', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (11, 1, 10, 11, 'a00010', 1, true, false, '\x44a5d03fbcfab5fa0464359815eae4ab', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (12, 1, 11, 12, 'a00011', 1, true, false, '\x5bc8dff7abdd1f0969b51efd44568a8c', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (13, 1, 12, 13, 'a00012', 1, true, false, '\x7ad42fe1fd8fb9618eadc441f6dc4934', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (14, 1, 13, 14, 'a00013', 1, true, false, '\xa20808ab160c2d2fd7f35cb18614b48b', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (15, 1, 14, 15, 'a00014', 1, true, false, '\xf83296d815ab057cd4ba619f0d9eefd6', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (16, 1, 15, 16, 'a00015', 1, true, false, '\x48ce669ec29186f2257cca0658dcc03b', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (17, 1, 16, 17, 'a00016', 1, true, false, '\xfa256ef56c41d39c5f0408df76c0f97d', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (18, 1, 17, 18, 'a00017', 1, true, false, '\xde3c7f0f9e6c1238e3f77f5047041d24', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (20, 1, 19, 20, 'a00019', 1, true, false, '\xa9c795c93f4bdd81aff78a3c4e81d781', 'mock', NULL, 'pending', 0, NULL, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (19, 1, 18, 19, 'a00018', 1, true, true, '\x163a0d5957016887d59429169215296d', 'mock', NULL, 'completed', 1, NULL, 19922945, 1, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (4, 1, 3, 4, 'a00003', 1, true, true, '\x12410509f623f7d94ce85761b21f3990', 'mock', NULL, 'in_doubt', 1, NULL, NULL, 1, 0, 0, 0, 0, 1796054235.6661334, 0, 218000000, 'connection_lost', 'the connection to 127.0.0.1:41545 was reset before an answer came');
INSERT INTO public.items VALUES (10, 1, 9, 10, 'a00009', 1, true, true, '\xa796568a8b58aed6972dd7702816e810', 'mock', NULL, 'failed', 1, NULL, NULL, 1, 0, 0, 0, 0, 1796054235.6883874, 0, 218000000, 'html', '200 OK: a web page instead of an answer: Gateway');
INSERT INTO public.items VALUES (8, 1, 7, 8, 'a00007', 1, true, true, '\x5393549d6da1b6fb5cd2ae59e87c07ab', 'mock', NULL, 'failed', 1, NULL, NULL, 1, 0, 0, 0, 0, 1796054235.7147152, 0, 218000000, 'html', '200 OK: a web page instead of an answer: Gateway');
INSERT INTO public.items VALUES (1, 1, 0, 1, 'a00000', 1, true, false, '\x526a1174145d680c8daa3a83542eb9e2', 'mock', NULL, 'running', 1, 2, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (2, 1, 1, 2, 'a00001', 1, true, false, '\xe51436dec9041dcb647d65ad7ccb3671', 'mock', NULL, 'running', 1, 2, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (3, 1, 2, 3, 'a00002', 1, true, false, '\xf0c3c91ca13a689b45de5b983d163864', 'mock', NULL, 'running', 1, 2, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);
INSERT INTO public.items VALUES (5, 1, 4, 5, 'a00004', 1, true, false, '\x82a08bd758b8f7c772136468e4b70021', 'mock', NULL, 'running', 1, 2, NULL, 0, 0, 0, 0, 0, 1796054234.963484, 0, 218000000, NULL, NULL);


--
-- Data for Name: jobs; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.jobs VALUES (1, 'batch-001', 'in_progress', NULL, NULL, false, '{"task_id": "batch-001", "model": "mock", "input_file": "/where/it/was/inputs/in.jsonl", "output_file": "/where/it/was/outputs/out.jsonl", "max_tokens": 64, "concurrency": 4, "retry_times": 3, "base_url": null, "api_key_env": null, "endpoints": [], "endpoint": "/v1/chat/completions", "params": {}, "prompt_template": null, "system": null, "timeout_s": 600.0, "on_unknown": "hold", "response_schema": null, "accept_fenced": false, "reask": 0, "unknown_statuses": [], "refused_statuses": [], "lookup": null, "idempotency_header": null, "idempotency_retention_s": 86400.0, "order": "input", "cache": false, "measure": false, "trial": {"size": 4, "sample": "stratified", "seed": 0, "max_failed_share": 0.5, "max_invalid_share": 0.5}, "rpm": null, "tpm": null, "price": {"input_per_1m_usd": "1", "output_per_1m_usd": "2", "cached_input_per_1m_usd": null, "cache_write_per_1m_usd": null, "per_request_usd": "0", "source": null}, "price_from": null, "max_cost_usd": null, "max_prompt_tokens": null, "error_file": "/where/it/was/outputs/out.errors.jsonl", "fail_on_error": null, "endpoint_down_limit_s": 1800.0, "metadata": {}, "on_unknown_is_said": false, "resolved_base_url": "http://127.0.0.1:41545/v1", "spec_file": "jobs/job.json"}', 'a9d4f73c379aada546c4dcbb996bf733731bdd6b1d1e9d40b2509c27d78a7715', '2e96606a364d13507edee3705a50e847', 20, 'full', 'failed', 'hold', 4, NULL, 3, NULL, NULL, NULL, 80000000, 1526000000, NULL, NULL, false, 2, 1796054236.6756651, 1796054234.963484, 1796054235.2104025, NULL, 0.9223717999993823, 5, '46774ae445bd999b', NULL, NULL, NULL);


--
-- Data for Name: leases; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: ledgers; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.ledgers VALUES (1, '6e7b0665db96', 21, 1796054234.9161832, NULL, NULL, NULL, NULL);


--
-- Data for Name: requests; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.requests VALUES (1, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030305d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (2, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030315d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (3, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030325d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (4, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030335d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (5, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030345d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (6, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030355d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (7, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030365d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (8, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030375d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (9, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030385d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (10, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303030395d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (11, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031305d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (12, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031315d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (13, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031325d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (14, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031335d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (15, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031345d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (16, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031355d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (17, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031365d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (18, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031375d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (19, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031385d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');
INSERT INTO public.requests VALUES (20, '/v1/chat/completions', '\x7b226d65737361676573223a5b7b22726f6c65223a2275736572222c22636f6e74656e74223a225b5b6130303031395d5d2068656c6c6f227d5d2c226d6f64656c223a226d6f636b222c226d61785f746f6b656e73223a36347d');


--
-- Data for Name: traces; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: workers; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.workers VALUES (1, '221e880f9d33beac', 'another-host-20339', 'another-host', 20339, '/where/it/was/.batchrun/workers', '0.1.0', 1796054234.927502, 'fb2978b6-e6ec-4e6d-beac-7634dbef4102', 1796054236.221157);
INSERT INTO public.workers VALUES (2, '46774ae445bd999b', 'another-host-20354', 'another-host', 20354, '/where/it/was/.batchrun/workers', '0.1.0', 1796054236.617655, 'fb2978b6-e6ec-4e6d-beac-7634dbef4102', NULL);


--
-- Name: events_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.events_id_seq', 6, true);


--
-- Name: jobs_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.jobs_id_seq', 1, true);


--
-- Name: ledgers_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.ledgers_id_seq', 1, false);


--
-- Name: workers_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.workers_id_seq', 2, true);


--
-- Name: alembic_version alembic_version_pkc; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);


--
-- Name: answers pk_answers; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.answers
    ADD CONSTRAINT pk_answers PRIMARY KEY (key);


--
-- Name: asked pk_asked; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.asked
    ADD CONSTRAINT pk_asked PRIMARY KEY (ask);


--
-- Name: attempts pk_attempts; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT pk_attempts PRIMARY KEY (key);


--
-- Name: copies pk_copies; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.copies
    ADD CONSTRAINT pk_copies PRIMARY KEY (item_id);


--
-- Name: events pk_events; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);


--
-- Name: heartbeats pk_heartbeats; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.heartbeats
    ADD CONSTRAINT pk_heartbeats PRIMARY KEY (worker_id);


--
-- Name: incoming pk_incoming; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.incoming
    ADD CONSTRAINT pk_incoming PRIMARY KEY (job_id, "position");


--
-- Name: items pk_items; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.items
    ADD CONSTRAINT pk_items PRIMARY KEY (id);


--
-- Name: jobs pk_jobs; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);


--
-- Name: leases pk_leases; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT pk_leases PRIMARY KEY (job_id, worker_id);


--
-- Name: ledgers pk_ledgers; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.ledgers
    ADD CONSTRAINT pk_ledgers PRIMARY KEY (id);


--
-- Name: requests pk_requests; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.requests
    ADD CONSTRAINT pk_requests PRIMARY KEY (item_id);


--
-- Name: traces pk_traces; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.traces
    ADD CONSTRAINT pk_traces PRIMARY KEY (key);


--
-- Name: workers pk_workers; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.workers
    ADD CONSTRAINT pk_workers PRIMARY KEY (id);


--
-- Name: items uq_items_job_id_custom_id_revision; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.items
    ADD CONSTRAINT uq_items_job_id_custom_id_revision UNIQUE (job_id, custom_id, revision);


--
-- Name: jobs uq_jobs_task_id; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT uq_jobs_task_id UNIQUE (task_id);


--
-- Name: workers uq_workers_incarnation; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.workers
    ADD CONSTRAINT uq_workers_incarnation UNIQUE (incarnation);


--
-- Name: ix_attempts_job_id_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_attempts_job_id_state ON public.attempts USING btree (job_id, state);


--
-- Name: ix_events_job_id_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_events_job_id_id ON public.events USING btree (job_id, id);


--
-- Name: ix_incoming_job_id_custom_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_incoming_job_id_custom_id ON public.incoming USING btree (job_id, custom_id);


--
-- Name: ix_items_job_id_position; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_items_job_id_position ON public.items USING btree (job_id, "position");


--
-- Name: ix_items_job_id_state_rank_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_items_job_id_state_rank_id ON public.items USING btree (job_id, state, rank, id) WHERE is_current;


--
-- Name: ix_items_trial; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_items_trial ON public.items USING btree (job_id, id) WHERE is_trial;


--
-- Name: answers fk_answers_key_attempts; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.answers
    ADD CONSTRAINT fk_answers_key_attempts FOREIGN KEY (key) REFERENCES public.attempts(key);


--
-- Name: copies fk_copies_item_id_items; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.copies
    ADD CONSTRAINT fk_copies_item_id_items FOREIGN KEY (item_id) REFERENCES public.items(id);


--
-- Name: heartbeats fk_heartbeats_worker_id_workers; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.heartbeats
    ADD CONSTRAINT fk_heartbeats_worker_id_workers FOREIGN KEY (worker_id) REFERENCES public.workers(id);


--
-- Name: items fk_items_job_id_jobs; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.items
    ADD CONSTRAINT fk_items_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- Name: items fk_items_worker_id_workers; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.items
    ADD CONSTRAINT fk_items_worker_id_workers FOREIGN KEY (worker_id) REFERENCES public.workers(id);


--
-- Name: jobs fk_jobs_holder_workers; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT fk_jobs_holder_workers FOREIGN KEY (holder) REFERENCES public.workers(id);


--
-- Name: leases fk_leases_job_id_jobs; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT fk_leases_job_id_jobs FOREIGN KEY (job_id) REFERENCES public.jobs(id);


--
-- Name: leases fk_leases_worker_id_workers; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT fk_leases_worker_id_workers FOREIGN KEY (worker_id) REFERENCES public.workers(id);


--
-- Name: requests fk_requests_item_id_items; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.requests
    ADD CONSTRAINT fk_requests_item_id_items FOREIGN KEY (item_id) REFERENCES public.items(id);


--
-- Name: traces fk_traces_key_attempts; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.traces
    ADD CONSTRAINT fk_traces_key_attempts FOREIGN KEY (key) REFERENCES public.attempts(key);


--
-- PostgreSQL database dump complete
--


