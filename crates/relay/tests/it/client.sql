drop database shell;
create database shell;
use shell;
create table t (a int primary key, b varchar(20));
insert into t values (1, 'one'), (2, 'two');
select * from t;
show columns from t;
start transaction;
update t set b = 'uno' where a = 1;
commit;
select t.*, a + 1 as next from t;
delimiter //
create procedure many() begin select 1; select * from t; insert into t values (3, 'three'); end//
delimiter ;
call many();
prepare s from 'select * from t where a > ?';
set @x = 1;
execute s using @x;
lock tables t write;
insert into t values (4, 'four');
unlock tables;
alter table t engine = aria;
handler t open;
handler t read first;
handler t close;
explain select * from t where a = 1;
check table t;
status_of_nothing;
drop table t;
